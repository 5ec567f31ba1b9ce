"""Installs the agents that `make test-clients` drives: Claude Code, Codex and OpenCode, from npm.

They come as packages that hold a program for Linux on x64 and nothing else, in the versions and with the hashes of
`scripts/locks/agents/`, into a folder of the project. No install script of a package is run. The lock names no
registry: npm asks the one that it is configured for.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import make_venv

ROOT = Path(__file__).resolve().parent.parent
AGENTS = ROOT / ".venvs" / "agents"
LOCKS = ROOT / "scripts" / "locks" / "agents"
FILES = ("package.json", "package-lock.json")
PLATFORM = ("Linux", "x86_64")
INSTALL_SECONDS_MAX = 600.0
ERROR_LINES_SHOWN = 8

MODULES = AGENTS / "node_modules"
PROGRAMS = {
    "claude": MODULES / "@anthropic-ai" / "claude-code-linux-x64" / "claude",
    "codex": MODULES
    / "@openai"
    / "codex-linux-x64"
    / "vendor"
    / "x86_64-unknown-linux-musl"
    / "bin"
    / "codex",
    "opencode": MODULES / "opencode-linux-x64" / "bin" / "opencode",
}


def find_npm() -> str:
    """The npm command; raises InstallError that says what is missing."""
    here = (platform.system(), platform.machine())
    if here != PLATFORM:
        raise make_venv.InstallError(
            f"the lock in {LOCKS.relative_to(ROOT)} has the agents' programs for {' on '.join(PLATFORM)} only, "
            f"and this is {' on '.join(here)}"
        )
    npm = shutil.which("npm")
    if npm is None:
        raise make_venv.InstallError(
            "npm is not on the PATH: install Node.js 18 or newer with npm "
            "(on Debian and Ubuntu: apt-get install nodejs npm)"
        )
    return npm


def npm_ci(npm: str) -> None:
    """Install exactly what the lock names; raises InstallError with npm's own last words."""
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
    environment = {**os.environ, "NO_UPDATE_NOTIFIER": "1", "npm_config_update_notifier": "false"}
    try:
        done = subprocess.run(
            command,
            cwd=AGENTS,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise make_venv.InstallError(
            f"npm did not finish in {INSTALL_SECONDS_MAX:.0f} s: does the registry answer? `npm ping` tells"
        ) from None
    if done.returncode != 0:
        words = "\n".join(done.stdout.strip().splitlines()[:ERROR_LINES_SHOWN])
        raise make_venv.InstallError(
            f"npm could not install the agents; the registry that it is configured for must serve the packages of "
            f"{LOCKS.relative_to(ROOT)} (`npm ping` tells whether it answers at all). npm says:\n{words}"
        )


def main() -> int:
    """Install once; returns the exit code."""
    wanted = make_venv.digest([], [*(LOCKS / name for name in FILES), Path(__file__)])
    if make_venv.is_current(AGENTS, wanted):
        return 0
    started = time.monotonic()
    try:
        npm = find_npm()
        print(f"installing {', '.join(PROGRAMS)} into {AGENTS} (840 MB)", flush=True)
        AGENTS.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(LOCKS / name, AGENTS / name)
        npm_ci(npm)
    except make_venv.InstallError as error:
        print(error, file=sys.stderr)
        return 1
    missing = [str(path) for path in PROGRAMS.values() if not os.access(path, os.X_OK)]
    if missing:
        print(f"npm installed the packages, but these programs are not in them: {missing}", file=sys.stderr)
        return 1
    make_venv.mark(AGENTS, wanted)
    print(f"the agents are in {AGENTS} after {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
