"""Installs a serving engine for the CPU into an environment of its own, once: torch by pip, the rest from a lock file.

torch's CPU build is on no ordinary index: pip finds it where its configuration offers it, otherwise on the index that
TAO_TORCH_INDEX names (PyTorch has one for CPU builds). It must not know one engine from another.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import make_venv

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0+cpu"


def install_torch(directory: Path) -> None:
    """The CPU build of torch by pip, whose configuration uv does not read; the lock has what torch needs."""
    index = os.environ.get("TAO_TORCH_INDEX")
    options = ["--extra-index-url", index] if index else []
    try:
        make_venv.pip_install(directory, ["--no-deps", *options, TORCH])
    except make_venv.InstallError as error:
        raise make_venv.InstallError(
            f"{error}. If pip here does not offer PyTorch's CPU build, set TAO_TORCH_INDEX to the address "
            "of an index that does (PyTorch publishes one for CPU builds) and run the same again"
        ) from error


def site_packages(directory: Path) -> Path:
    """Where the environment's interpreter finds what is installed."""
    answer = subprocess.run(
        [make_venv.python_of(directory), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(answer.stdout.strip())


def install_once(
    name: str, directory: Path, lock: Path, inputs: Sequence[Path], finish: Callable[[Path], None]
) -> int:
    """Install `lock` and torch into `directory`, then `finish` it; returns the exit code.

    `name`: of the engine, with its version, for people. Anew where it, the lock or one of `inputs` has changed.
    """
    wanted = make_venv.digest([TORCH, name], [lock, Path(__file__), *inputs])
    if make_venv.is_current(directory, wanted):
        return 0
    started = time.monotonic()
    try:
        make_venv.create(directory)
        install_torch(directory)
        make_venv.install(directory, ["--no-deps", "-r", str(lock)])
    except make_venv.InstallError as error:
        print(error, file=sys.stderr)
        return 1
    finish(directory)
    make_venv.mark(directory, wanted)
    print(f"{name} for the CPU is in {directory} after {time.monotonic() - started:.0f} s")
    return 0
