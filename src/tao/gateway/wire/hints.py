"""What clients say beside their prompt: the class of a request, compaction, measured tool durations, endings.

All of it is optional and none of it is trusted beyond the sender's own session. It must not know sessions or
tables.
"""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

from tao.core.events import TurnKind
from tao.gateway.wire import lenient
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.identity import scoped, tenant_of

DURATION_ENTRIES_MAX = 32
DURATIONS_CHARS_MAX = 4096
_DURATION_MS_MAX = 10**9
_SIDE_CLASSES = frozenset({"auxiliary", "compaction"})
_SIDE_KINDS = frozenset({"compaction", "memory", "compact", "memory_consolidation"})
_FINAL_HEADERS = ("x-dynamo-session-final", "x-session-final")
_HINT_NAMES = frozenset(
    {
        *_FINAL_HEADERS,
        "x-claude-code-agent-type",
        "x-claude-code-context-compacted",
        "x-claude-code-prev-tool-durations",
        "x-claude-code-request-class",
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-openai-subagent",
        "x-stainless-retry-count",
    }
)
_RELEASE_PATHS = {
    "/programs/release": ("program_id", "session_id"),
    "/finish_session": ("session_id", "program_id"),
    "/close_session": ("session_id", "program_id"),
}


@dataclass(frozen=True, slots=True)
class RequestHints:
    """Hints of one request.

    `declared` is what the client says the turn is (side or reset), None where it says nothing. `window`
    changes when Codex compacts. `tool_durations` are (name, seconds) of the calls before this turn; they do
    not add up to the gap, and their absence does not mean that no tool ran. `final`: the session ends with
    this turn.
    """

    declared: TurnKind | None
    agent_kind: str
    window: str
    tool_durations: tuple[tuple[str, float], ...]
    retry: bool
    final: bool


def read_hints(headers: Headers) -> RequestHints:
    """The hints in `headers`; malformed ones are absent."""
    if headers.isdisjoint(_HINT_NAMES):
        return _NO_HINTS
    retries = headers.get("x-stainless-retry-count")
    return RequestHints(
        declared=_declared(headers),
        agent_kind=headers.get("x-claude-code-agent-type")[:64] or headers.get("x-openai-subagent")[:64],
        window=headers.get("x-codex-window-id")[:256],
        tool_durations=tool_durations(headers.get("x-claude-code-prev-tool-durations")),
        retry=retries.isascii() and retries.isdigit() and retries.strip("0") != "",
        final=any(headers.flag(name) for name in _FINAL_HEADERS),
    )


_NO_HINTS = RequestHints(None, "", "", (), retry=False, final=False)


def tool_durations(value: str) -> tuple[tuple[str, float], ...]:
    """Claude Code's `name=ms;name=ms`, percent-encoded names; the first entries count, ill-formed ones are
    left out.
    """
    found: list[tuple[str, float]] = []
    for entry in value[:DURATIONS_CHARS_MAX].split(";", DURATION_ENTRIES_MAX)[:DURATION_ENTRIES_MAX]:
        name, separator, text = entry.strip().rpartition("=")
        if not (separator and name and text.isascii() and text.isdigit() and len(text) <= 10):
            continue
        if int(text) <= _DURATION_MS_MAX:
            found.append((unquote(name, errors="replace")[:128], int(text) / 1000))
    return tuple(found)


def _declared(headers: Headers) -> TurnKind | None:
    if headers.get("x-claude-code-request-class").lower() in _SIDE_CLASSES:
        return TurnKind.SIDE
    if headers.get("x-openai-subagent").lower() in _SIDE_KINDS:
        return TurnKind.SIDE
    turn = lenient.object_or_none(headers.get("x-codex-turn-metadata").encode("utf-8", "replace")) or {}
    if lenient.text(turn, "request_kind") in _SIDE_KINDS:
        return TurnKind.SIDE
    if headers.flag("x-claude-code-context-compacted"):
        return TurnKind.RESET
    return None


def released_session(method: str, path: str, query: str, headers: Headers, body: bytes) -> str | None:
    """The session that a release request of ThunderAgent, prime-rl or SGLang ends, None for any other
    request.

    Raises `ValueError` with a message for the client where the request names no session.
    """
    keys = _RELEASE_PATHS.get(path.removeprefix("/v1"))
    if keys is None or method != "POST":
        return None
    named = parse_qs(query, max_num_fields=32) if query.count("&") < 32 else {}
    document = lenient.object_or_none(body) or {}
    for key in keys:
        value = (named.get(key) or [""])[0] or lenient.text(document, key)
        if value:
            return scoped(tenant_of(headers), value)
    raise ValueError(f"{path} needs '{keys[0]}', in the body or in the query")
