"""Run in a fresh interpreter with module names as arguments: prints, as JSON, what importing them did besides.

First all are imported once, so that third-party packages, which may do as they like, are loaded; then TAO's
modules alone are dropped and imported again under an audit hook. A metric or handler registered at import fails
here too, for being registered twice.
"""

import importlib
import json
import sys
import threading

WATCHED = (
    *(
        "_thread.start_new_thread",
        "os.exec",
        "os.fork",
        "os.mkdir",
        "os.posix_spawn",
        "os.remove",
        "os.rename",
    ),
    *("os.system", "shutil.", "signal.", "socket.", "sqlite3.", "subprocess.", "tempfile.", "urllib."),
)


def main(names: list[str]) -> None:
    """Import `names` twice and print the effects of the second time."""
    for name in names:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name == "tao" or name.startswith("tao.")]:
        del sys.modules[name]
    effects: list[str] = []

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path = str(arguments[0])
            if ".py" not in path:  # source or bytecode, which the import itself reads
                effects.append(f"open {path}")
        elif event.startswith(WATCHED):
            effects.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(audit)
    for name in names:
        importlib.import_module(name)
    seen = list(effects)
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    sys.stdout.write(json.dumps({"effects": seen, "threads": threads}))


if __name__ == "__main__":
    main(sys.argv[1:])
