"""Importing TAO does nothing else: no files, sockets, processes, threads or output; commands load lazily."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import tao

PROBE = Path(__file__).with_name("import_probe.py")
LIST_LOADED = "import sys, tao.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def run_python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_importing_every_module_does_nothing_else() -> None:
    found = pkgutil.walk_packages(tao.__path__, prefix="tao.")
    names = sorted(module.name for module in found if not module.name.endswith("__main__"))
    assert "tao.cli" in names
    assert json.loads(run_python(str(PROBE), *names)) == {"effects": [], "threads": []}


def test_the_command_line_loads_no_http_server() -> None:
    loaded = set(run_python("-c", LIST_LOADED).split())
    assert {"tao", "click"} <= loaded
    assert loaded.isdisjoint({"aiohttp", "asyncio", "httptools", "numpy", "uvicorn", "uvloop", "zmq"})
