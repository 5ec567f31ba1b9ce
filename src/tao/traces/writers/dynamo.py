"""Writes Dynamo's agentic Mooncake: the one public format that keeps tool time apart from other waits.

A row waits for the row before it in its session; a child's first row for the parent's turn that spawned it;
the parent's next row for the children's last ones. Block ids are made up so that prompts that extend one
another share theirs and nothing else is shared but the system prompt of a source. It must not know how
sessions were read.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tao.traces.errors import refuse
from tao.traces.lines import open_output
from tao.traces.model import TraceSession, TraceTool, TraceTurn
from tao.traces.readers.native import NativeReader
from tao.traces.writers.native import write_native

MILLISECONDS = 1000.0
BLOCK_TOKENS = 512


def write_dynamo_agentic(path: Path | str, sessions: Iterable[TraceSession]) -> int:
    """Blocks are of 512 tokens. Sessions go over a temporary file, because parents must know their
    children.
    """
    encoder = msgspec.json.Encoder()
    with _spooled(sessions) as spool, open_output(Path(path)) as stream:
        families = _Families.of(spool)
        blocks = _Blocks()
        for session in spool.sessions():
            for row in _rows(session, families, blocks):
                stream.write(encoder.encode(row) + b"\n")
        return spool.count


@dataclass(frozen=True, slots=True)
class _Spool:
    path: Path
    count: int

    def sessions(self) -> Iterator[TraceSession]:
        return (session for _, session in NativeReader().read(self.path, refuse))


@contextmanager
def _spooled(sessions: Iterable[TraceSession]) -> Iterator[_Spool]:
    with tempfile.TemporaryDirectory(prefix="tao-trace-") as folder:
        path = Path(folder) / "spool.jsonl"
        yield _Spool(path, write_native(path, sessions))


@dataclass(slots=True)
class _Families:
    """First and last request of each child, by the parent's turn that spawned it; turns of the parents."""

    spawned: dict[tuple[str, int], list[tuple[str, str]]] = field(default_factory=dict)
    turns_of: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, spool: "_Spool") -> "_Families":
        families = cls()
        for session in spool.sessions():
            if session.parent is not None:
                ends = _request_id(session, 0), _request_id(session, len(session.turns) - 1)
                families.spawned.setdefault((session.parent, session.parent_turn or 0), []).append(ends)
        parents = dict.fromkeys(parent for parent, _ in families.spawned)
        families.turns_of = {s.session_id: len(s.turns) for s in spool.sessions() if s.session_id in parents}
        return families

    def spawning_request(self, child: TraceSession) -> str | None:
        """The request that a child waits for; None for a session without parent, or whose parent is not
        here.
        """
        turn = child.parent_turn or 0
        if child.parent is None or turn >= self.turns_of.get(child.parent, 0):
            return None
        return f"{child.parent}:{turn}"

    def children(self, session: TraceSession, turn: int) -> list[tuple[str, str]]:
        return self.spawned.get((session.session_id, turn), [])


class _Blocks:
    """Ids of KV blocks, never used twice but for a source's shared prefix."""

    def __init__(self) -> None:
        self._next = 1
        self._shared: dict[str, list[int]] = {}

    def fresh(self, count: int) -> list[int]:
        first, self._next = self._next, self._next + count
        return list(range(first, first + count))

    def shared(self, session: TraceSession) -> list[int]:
        count = min(session.shared_prefix_tokens or 0, session.turns[0].prompt_tokens) // BLOCK_TOKENS
        ids = self._shared.setdefault(session.source or session.agent, [])
        ids.extend(self.fresh(max(0, count - len(ids))))
        return ids[:count]


def _rows(session: TraceSession, families: _Families, blocks: _Blocks) -> Iterator[dict[str, object]]:
    shared = blocks.shared(session)
    chain: list[int] = []
    before: TraceTurn | None = None
    for index, turn in enumerate(session.turns):
        whole = turn.prompt_tokens // BLOCK_TOKENS
        kept = shared if session.starts_new_prefix(index) else chain
        chain = kept[:whole] + blocks.fresh(max(0, whole - len(kept)))
        partial = blocks.fresh(1) if turn.prompt_tokens % BLOCK_TOKENS else []
        row: dict[str, object] = {
            "request_id": _request_id(session, index),
            "session_id": session.session_id,
            "input_length": turn.prompt_tokens,
            "output_length": turn.output_tokens,
            "hash_ids": chain + partial,
            "wait_for": _wait_for(session, index, families),
            "branches": [first for first, _ in families.children(session, index)],
            "prefix_reset": session.starts_new_prefix(index),
        }
        if not row["wait_for"]:
            row["timestamp"] = round(session.start_offset_seconds * MILLISECONDS, 3)
        if before is not None:
            row.update(_waits(before))
        yield row
        before = turn


def _request_id(session: TraceSession, turn: int) -> str:
    return f"{session.session_id}:{turn}"


def _wait_for(session: TraceSession, index: int, families: _Families) -> list[str]:
    if index == 0:
        spawning = families.spawning_request(session)
        return [spawning] if spawning is not None else []
    before = session.turns[index - 1]
    joined = before.tool is not None and not before.tool.background
    children = [last for _, last in families.children(session, index - 1)] if joined else []
    return [_request_id(session, index - 1), *children]


def _waits(before: TraceTurn) -> dict[str, object]:
    waits: dict[str, object] = {"delay": round(before.human_seconds * MILLISECONDS, 3)}
    tool = before.tool
    if tool is not None and not tool.is_human:
        waits["tool_wait_ms"] = round(tool.duration_seconds * MILLISECONDS, 3)
        waits["tool_events"] = [_event(one) for one in before.tools or (tool,)]
    return waits


def _event(tool: TraceTool) -> dict[str, object]:
    event: dict[str, object] = {
        "tool_class": tool.name,
        "duration_ms": round(tool.duration_seconds * MILLISECONDS, 3),
        "status": "error" if tool.is_error else "succeeded",
    }
    if tool.result_chars is not None:
        event["output_bytes"] = tool.result_chars
    return event
