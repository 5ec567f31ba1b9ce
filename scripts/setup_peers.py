"""Installs the routers that `make bench-live` measures beside TAO, into an environment of their own.

The versions are pinned in `scripts/locks/peers.lock`; they come from the package index that pip is configured for, and
never go into the project's own environment. Nothing here knows how they are started.
"""

import sys
import time
from pathlib import Path

import make_venv

ROOT = Path(__file__).resolve().parent.parent
PEERS_VENV = ROOT / ".venvs" / "peers"
LOCK = ROOT / "scripts" / "locks" / "peers.lock"


def main() -> int:
    """Install once; returns the exit code."""
    wanted = make_venv.digest([], [LOCK, Path(__file__)])
    if make_venv.is_current(PEERS_VENV, wanted):
        return 0
    started = time.monotonic()
    try:
        make_venv.create(PEERS_VENV)
        make_venv.install(PEERS_VENV, ["--no-deps", "-r", str(LOCK)])
    except make_venv.InstallError as error:
        print(error, file=sys.stderr)
        return 1
    make_venv.mark(PEERS_VENV, wanted)
    print(f"the routers are in {PEERS_VENV} after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
