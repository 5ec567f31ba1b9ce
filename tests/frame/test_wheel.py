"""What is published works by itself: the wheel, built from the source distribution, in an empty environment."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import make_venv
import tao
from tao.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 240

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * SECONDS_MAX),
    pytest.mark.xdist_group("wheel"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an empty environment that the wheel was installed into."""
    directory = tmp_path_factory.mktemp("empty") / "venv"
    make_venv.create(directory)
    lock = ROOT / "scripts" / "locks" / "dev.lock"
    make_venv.install(directory, ["--constraint", str(lock), str(wheel)])
    return directory / "bin"


def run(command: Path, *arguments: str) -> str:
    done = subprocess.run(
        [command, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=command.parent,  # not the checkout, whose package must not be what is found
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    data = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "tao").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert data <= packed
    assert not [name for name in packed if name.startswith(("tests/", "scripts/"))]
    assert {f"tao_serve-{tao.__version__}.dist-info/licenses/LICENSE"} <= packed


def test_the_command_tells_its_version(installed: Path) -> None:
    assert run(installed / "tao", "--version").split() == ["tao,", "version", tao.__version__]


def test_the_command_lists_what_it_can_do(installed: Path) -> None:
    answer = run(installed / "tao", "--help")
    assert all(name in answer for name in COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_explains_itself(installed: Path, name: str) -> None:
    assert run(installed / "tao", name, "--help").startswith("Usage: tao ")


def test_the_package_runs_as_a_module(installed: Path) -> None:
    assert tao.__version__ in run(installed / "python", "-m", "tao", "--version")
