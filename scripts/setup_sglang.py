"""Installs SGLang for `make test-sglang`, to run on a CPU, into an environment of its own.

The versions are pinned in `scripts/locks/sglang.lock`; what serves GPUs only is left out there (`sglang.overrides`).
Two packages of those are imported all the same when a server starts: `scripts/sglang_stubs` has them without anything
inside, and the environment finds them there.
"""

import sys
from pathlib import Path

import cpu_engine

SGLANG_VENV = cpu_engine.ROOT / ".venvs" / "sglang"
LOCK = cpu_engine.ROOT / "scripts" / "locks" / "sglang.lock"
STUBS = cpu_engine.ROOT / "scripts" / "sglang_stubs"
SGLANG_VERSION = "0.5.23"


def show_the_stubs(directory: Path) -> None:
    """Let the environment's interpreter find the stubs."""
    (cpu_engine.site_packages(directory) / "sglang_stubs.pth").write_text(f"{STUBS}\n")


def main() -> int:
    """Install once; returns the exit code."""
    name = f"SGLang {SGLANG_VERSION}"
    return cpu_engine.install_once(name, SGLANG_VENV, LOCK, [Path(__file__)], show_the_stubs)


if __name__ == "__main__":
    sys.exit(main())
