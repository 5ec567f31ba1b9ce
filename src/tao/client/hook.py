"""Claude Code's hook: reads what Claude Code says of a tool call from standard input and reports it to TAO.

Run as a script, by path, with nothing of TAO imported: starting it is all that a tool waits for. It answers at once, by
leaving; a child process reports, within a deadline of its own. Nothing that happens here fails or blocks the tool.
"""

import os
import sys

TIMEOUT_SECONDS = 2.0
TIMEOUT_SECONDS_WITHOUT_FORK = 0.03
EVENTS = {"PreToolUse": "start", "PostToolUse": "end", "PostToolUseFailure": "end"}


def main() -> None:
    """Report and leave; always with success and without a word."""
    try:
        url = _url(sys.argv[1:])
        said = sys.stdin.buffer.read()
        if url and said:
            if hasattr(os, "fork"):
                _let_go()
                if os.fork() == 0:
                    os.setsid()
                    _report(url, said, TIMEOUT_SECONDS)
            else:
                _report(url, said, TIMEOUT_SECONDS_WITHOUT_FORK)
    finally:
        os._exit(0)


def _url(arguments: list[str]) -> str:
    """Where the gateway is: the option's, TAO's own variable, or where Claude Code itself sends its turns."""
    if len(arguments) == 2 and arguments[0] == "--url":
        return arguments[1]
    return os.environ.get("TAO_URL") or os.environ.get("ANTHROPIC_BASE_URL") or ""


def _let_go() -> None:
    """Close Claude Code's pipes, whose ends it waits for, before a child could keep them open."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _report(url: str, said: bytes, timeout_seconds: float) -> None:
    import json  # noqa: PLC0415 - in the child, where nobody waits for it
    from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    event = tool_event(json.loads(said))
    parts = urlsplit(url)
    if event is None or not parts.hostname:
        return
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout_seconds)
    path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/tao/tools"
    connection.request("POST", path, json.dumps(event), {"content-type": "application/json", **_credential()})
    connection.getresponse().read()


def tool_event(said: dict[str, object]) -> dict[str, object] | None:
    """The event for TAO's tools API; None for a hook that says nothing of a tool call."""
    event = EVENTS.get(str(said.get("hook_event_name")))
    session, tool, call = said.get("session_id"), said.get("tool_name"), said.get("tool_use_id")
    if event is None or not session or not tool:
        return None
    agent = said.get("agent_id")  # a sub-agent's turns carry it beside the session's id
    return {
        "session": f"{session}:{agent}" if agent else str(session),
        "event": event,
        "call_id": str(call or tool)[:256],
        "tool": str(tool)[:128],
    }


def _credential() -> dict[str, str]:
    """What Claude Code sends with its turns, as it sends it: sessions are scoped by it."""
    token, key = os.environ.get("ANTHROPIC_AUTH_TOKEN"), os.environ.get("ANTHROPIC_API_KEY")
    return {
        **({"authorization": f"Bearer {token}"} if token else {}),
        **({"x-api-key": key} if key else {}),
    }


if __name__ == "__main__":
    main()
