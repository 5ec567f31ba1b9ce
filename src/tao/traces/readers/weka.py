"""Weka / AgentX traces: one JSON document a session, sub-agents nested in it.

Times are seconds from the session's start; a sub-agent's inner times count from its marker in some corpora
and from the session's start in others, which the first of them tells. A gap after `tool_use` is a tool, after
anything else a human. Sub-agents become sessions of their own. It must not know other formats.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from tao.traces.errors import BadLine, OnBadLine
from tao.traces.lines import documents
from tao.traces.model import SECONDS_MAX, UNKNOWN_TOOL, Id, Tokens, TraceSession, TraceTool, TraceTurn
from tao.traces.readers.prefix import BlockHistory

SUB_AGENT_TOOL = "Task"
TOOL_STOP = "tool_use"
LAUNCHED_IN_BACKGROUND = "async_launched"


class _Request(Struct, kw_only=True):
    t: float
    prompt_tokens: Tokens = field(name="in")
    output_tokens: Tokens = field(name="out")
    model: str = ""
    hash_ids: list[int] = field(default_factory=list)
    stop: str | None = None
    api_time: float | None = None
    think_time: float | None = None
    ttft: float | None = None


class _Normal(_Request, tag="n"):
    pass


class _Streaming(_Request, tag="s"):
    pass


class _SubAgent(Struct, kw_only=True, tag="subagent"):
    t: float
    agent_id: str = ""
    status: str = ""
    duration_ms: float | None = None
    requests: list[_Normal | _Streaming] = field(default_factory=list)
    tool_tokens: Tokens | None = None
    system_tokens: Tokens | None = None


class _Document(Struct, kw_only=True):
    id: Id
    requests: list[_Normal | _Streaming | _SubAgent]
    models: list[str] = field(default_factory=list)
    tool_tokens: Tokens | None = None
    system_tokens: Tokens | None = None


class WekaReader:
    """A session, then its sub-agents in the order of their markers."""

    def read(self, path: Path, on_bad_line: OnBadLine) -> Iterator[tuple[int, TraceSession]]:
        decoder = msgspec.json.Decoder(_Document)
        for number, text in documents(path):
            try:
                sessions = _sessions(decoder.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
                on_bad_line(BadLine(str(path), number, f"not a Weka trace: {error}"))
                continue
            for session in sessions:
                yield number, session


def _sessions(document: _Document) -> list[TraceSession]:
    main: list[_Request] = []
    markers: list[tuple[int, _SubAgent]] = []
    for entry in document.requests:
        if isinstance(entry, _SubAgent):
            markers.append((max(len(main) - 1, 0), entry))
        else:
            main.append(entry)
    if not main:
        raise ValueError("it has no request of its own")
    root = TraceSession(
        session_id=document.id,
        agent="claude-code",
        model=document.models[0] if document.models else main[0].model,
        tokens="measured",
        tool_tokens=document.tool_tokens,
        system_tokens=document.system_tokens,
        turns=_turns(main, dict(markers)),
    )
    children = [
        _child(document.id, number, turn, marker)
        for number, (turn, marker) in enumerate(markers)
        if marker.requests
    ]
    return [root, *children]


def _child(parent: str, number: int, parent_turn: int, marker: _SubAgent) -> TraceSession:
    requests: list[_Request] = list(marker.requests)
    return TraceSession(
        session_id=f"{parent}-sub{number}",
        agent="claude-code",
        model=requests[0].model,
        tokens="measured",
        start_offset_seconds=marker.t + (requests[0].t if requests[0].t < marker.t else 0.0),
        parent=parent,
        parent_turn=parent_turn,
        tool_tokens=marker.tool_tokens,
        system_tokens=marker.system_tokens,
        turns=_turns(requests, {}),
    )


def _turns(requests: list[_Request], markers: dict[int, _SubAgent]) -> tuple[TraceTurn, ...]:
    blocks = BlockHistory()
    turns: list[TraceTurn] = []
    for index, request in enumerate(requests):
        cached_tokens, reset = blocks.step(request.hash_ids, request.prompt_tokens)
        following = requests[index + 1] if index + 1 < len(requests) else None
        gap_seconds = _gap_seconds(request, following)
        tool = _tool(request, markers.get(index), gap_seconds)
        turns.append(
            TraceTurn(
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                cached_tokens=cached_tokens if request.hash_ids else None,
                llm_seconds=request.api_time,
                ttft_seconds=request.ttft,
                stop=request.stop,
                tool=tool,
                user_gap_seconds=gap_seconds if tool is None and following is not None else None,
                prefix_reset=reset,
            )
        )
    return tuple(turns)


def _gap_seconds(request: _Request, following: _Request | None) -> float:
    if following is None:
        return 0.0
    gap = following.think_time
    if gap is None:
        gap = following.t - request.t - (request.api_time or 0.0)
    if gap > SECONDS_MAX:
        raise ValueError(f"the gap before the request at t={following.t} is {gap} s")
    return max(gap, 0.0)


def _tool(request: _Request, marker: _SubAgent | None, gap_seconds: float) -> TraceTool | None:
    if marker is not None:
        return TraceTool(
            name=SUB_AGENT_TOOL,
            duration_seconds=gap_seconds,
            background=marker.status == LAUNCHED_IN_BACKGROUND,
        )
    if request.stop != TOOL_STOP:
        return None
    return TraceTool(name=UNKNOWN_TOOL, duration_seconds=gap_seconds)
