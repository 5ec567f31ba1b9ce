"""`tao hooks`: make other programs report their tools to TAO.

Prints what belongs into their settings, or merges it in. A settings file keeps everything that is not TAO's, is written in
one piece, and is not touched when it cannot be read.
"""

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tao.client import hook

SETTINGS = "~/.claude/settings.json"
EVENTS = tuple(hook.EVENTS)
TIMEOUT_SECONDS = 5
MARK = "tao/client/hook.py"
"""What tells TAO's own hooks from others."""

Json = dict[str, Any]


@click.group()
def command() -> None:
    """Make other programs report their tools to TAO."""


@command.command("claude-code", short_help="Claude Code: print its hooks, install or remove them.")
@click.option(
    "--url",
    metavar="URL",
    help="The gateway.  [default: where TAO_URL or ANTHROPIC_BASE_URL says when the hook runs]",
)
@click.option(
    "--install",
    is_flag=False,
    flag_value=SETTINGS,
    metavar="[PATH]",
    help=f"Merge the hooks into a settings file and keep everything else in it.  [path: {SETTINGS}]",
)
@click.option(
    "--remove",
    is_flag=False,
    flag_value=SETTINGS,
    metavar="[PATH]",
    help=f"Take the hooks out of a settings file again.  [path: {SETTINGS}]",
)
def claude_code(url: str | None, install: str | None, remove: str | None) -> None:
    """Hooks for Claude Code: TAO learns when each tool starts and ends.

    Prints them as settings unless told to install or to remove them. A gateway that is down neither fails
    nor delays a tool.

    \b
    Example: tao hooks claude-code --install .claude/settings.local.json
    """
    if install is not None and remove is not None:
        raise click.UsageError("--install and --remove exclude each other")
    ours = _ours(None if url is None else _checked(url))
    chosen = install if install is not None else remove
    if chosen is None:
        click.echo(json.dumps(ours, indent=2))
        return
    path = _followed(chosen)
    settings = _read(path)
    _take_out(settings, path)
    if install is not None:
        hooks = settings.setdefault("hooks", {})
        for event in EVENTS:
            hooks.setdefault(event, []).extend(ours["hooks"][event])
    _write(path, settings)
    click.echo(f"{'installed in' if install is not None else 'removed from'} {path}")


def _checked(url: str) -> str:
    """The address as it is; the hook itself, which must never fail a tool, would keep silent about a wrong one."""
    hint = "write it like http://127.0.0.1:8100"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise click.UsageError(f"--url {url!r}: {error}; {hint}") from None
    if not usable:
        raise click.UsageError(f"--url {url!r} is no http(s) URL; {hint}")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise click.UsageError(f"--url {url!r} has characters that no URL may have; {hint}")
    if parts.query or parts.fragment or parts.username is not None:
        raise click.UsageError(f"--url {url!r} has more than host, port and path; {hint}")
    return url


def _ours(url: str | None) -> Json:
    """The hooks as settings of Claude Code."""
    words = [sys.executable, "-I", "-S", str(Path(hook.__file__).resolve())]
    words += ["--url", url] if url is not None else []
    entry = {"type": "command", "command": shlex.join(words), "timeout": TIMEOUT_SECONDS}
    return {"hooks": {event: [{"matcher": "*", "hooks": [entry]}] for event in EVENTS}}


def _followed(chosen: str) -> Path:
    """The file itself where a link was named, so that the link stays one."""
    try:
        return Path(chosen).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, an unknown home
        raise click.UsageError(f"{chosen} cannot be read: {error}") from None


def _read(path: Path) -> Json:
    """The settings in a file; none where there is no file. Anything that is not as Claude Code has it is an error."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None
    try:
        settings = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError too
        raise click.UsageError(f"{path} is no JSON and was left alone: {error}") from None
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(hooks.get(event, []), list) for event in EVENTS):
        raise click.UsageError(f"{path} does not hold settings of Claude Code and was left alone")
    assert isinstance(settings, dict)
    return settings


def _take_out(settings: Json, path: Path) -> None:
    """Remove TAO's hooks, and what is empty without them."""
    hooks = settings.get("hooks", {})
    for event in EVENTS:
        kept = [_without_ours(group, path) for group in hooks.get(event, [])]
        hooks[event] = [group for group in kept if group is not None]
        if not hooks[event]:
            del hooks[event]
    if not hooks:
        settings.pop("hooks", None)


def _without_ours(group: Any, path: Path) -> Any:
    entries = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(entries, list):
        raise click.UsageError(f"{path} has a hook that is none and was left alone: {group!r}")
    rest = [entry for entry in entries if not _is_ours(entry)]
    if len(rest) == len(entries):
        return group
    return {**group, "hooks": rest} if rest else None


def _is_ours(entry: Any) -> bool:
    return isinstance(entry, dict) and MARK in str(entry.get("command", ""))


def _write(path: Path, settings: Json) -> None:
    """In one piece, with the rights that the file had."""
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON may hold as an escape only
        content = (json.dumps(settings, indent=2) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error}") from None
