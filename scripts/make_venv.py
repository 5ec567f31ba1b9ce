"""Makes a virtual environment and installs a given list into it, once.

Works with nothing but a Python that has `venv` and `pip`: uv is fetched by pip for speed, and pip does the
work itself where uv cannot (no wheel for the platform, an index that only pip knows how to reach). A stamp in
the environment holds a digest of everything asked for, so that a second call returns at once.
This file knows nothing of what is installed: the lists are in `scripts/locks/`.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

STAMP_NAME = ".installed"
PYTHON_MINIMUM = (3, 11)


class InstallError(Exception):
    """Neither uv nor pip could install what was asked for."""


def python_of(directory: Path) -> Path:
    """The interpreter of the environment in `directory`."""
    return directory / "bin" / "python"


def create(directory: Path) -> None:
    """Make the environment unless its interpreter is already there and starts."""
    python = python_of(directory)
    if python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0:
        return
    print(f"making {directory}", flush=True)
    try:
        venv.create(directory, with_pip=True, clear=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise InstallError(
            f"could not make {directory}: {error} (this Python needs `venv` with `ensurepip`; "
            "on Debian and Ubuntu that is the package python3-venv)"
        ) from error


def pip_install(directory: Path, arguments: Sequence[str]) -> None:
    """Run the environment's own pip; raises InstallError when it fails."""
    command = [str(python_of(directory)), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    if subprocess.run([*command, *arguments], check=False, stdin=subprocess.DEVNULL).returncode != 0:
        raise InstallError(f"pip could not install: {' '.join(arguments)}")


def find_uv(directory: Path) -> Path | None:
    """The uv of this environment or of the project's, else a fetched one; None when that fails."""
    project = Path(__file__).resolve().parent.parent / ".venv"
    for candidate in (directory / "bin" / "uv", project / "bin" / "uv"):
        if (
            candidate.exists()
            and subprocess.run([candidate, "--version"], check=False, capture_output=True).returncode == 0
        ):
            return candidate
    try:
        pip_install(directory, ["uv"])
    except InstallError:
        return None
    return directory / "bin" / "uv"


def uv_environment(directory: Path) -> dict[str, str]:
    """The process environment for uv, with the index and certificate of pip's configuration."""
    environment = dict(os.environ)
    pip = [str(python_of(directory)), "-m", "pip", "config", "get"]
    for setting, variables in (
        ("index-url", ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")),
        ("cert", ("PIP_CERT", "SSL_CERT_FILE")),
    ):
        pip_variable, uv_variable = variables
        if uv_variable in environment:
            continue
        value = environment.get(pip_variable)
        if value is None:
            asked = subprocess.run([*pip, f"global.{setting}"], check=False, capture_output=True, text=True)
            value = asked.stdout.strip() if asked.returncode == 0 else None
        if value:
            environment[uv_variable] = value
    environment.setdefault("UV_HTTP_TIMEOUT", "180")
    return environment


def install(directory: Path, arguments: Sequence[str]) -> None:
    """Install with uv, bytecode compiled since first starts are slow without; with pip where uv fails."""
    uv = find_uv(directory)
    if uv is not None:
        command = [
            str(uv),
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--python",
            str(python_of(directory)),
        ]
        done = subprocess.run(
            [*command, *arguments], check=False, stdin=subprocess.DEVNULL, env=uv_environment(directory)
        )
        if done.returncode == 0:
            return
        print(f"uv could not install into {directory}; trying pip", file=sys.stderr, flush=True)
    pip_install(directory, arguments)


def digest(arguments: Sequence[str], inputs: Sequence[Path]) -> str:
    """SHA-256 over the interpreter's version, the arguments and the contents of the files they depend on."""
    state = hashlib.sha256(repr((sys.version_info[:3], list(arguments))).encode())
    for path in inputs:
        state.update(path.read_bytes())
    return state.hexdigest()


def is_current(directory: Path, wanted: str) -> bool:
    """Whether the environment was completed for the digest `wanted`."""
    stamp = directory / STAMP_NAME
    return stamp.exists() and stamp.read_text() == wanted


def mark(directory: Path, wanted: str) -> None:
    """Record, as the last step, that the environment is complete."""
    (directory / STAMP_NAME).write_text(wanted)


def main(argv: Sequence[str] | None = None) -> int:
    """`make_venv.py DIRECTORY [--depends FILE ...] -- INSTALL-ARGUMENT ...`; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make a virtual environment once.")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--depends", type=Path, action="append", default=[], help="reinstall when this file changes"
    )
    parser.add_argument("arguments", nargs="+", help="what follows `pip install`, after `--`")
    options = parser.parse_args(argv)
    if sys.version_info < PYTHON_MINIMUM:
        print(
            f"Python {'.'.join(map(str, PYTHON_MINIMUM))} or newer is needed, this is {sys.version}",
            file=sys.stderr,
        )
        return 2
    wanted = digest(options.arguments, options.depends)
    try:
        if not is_current(options.directory, wanted):
            create(options.directory)
            install(options.directory, options.arguments)
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    mark(options.directory, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
