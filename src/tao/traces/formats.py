"""The formats by name: how each is recognised, read and written; and the one way to read any trace.

A new format is a reader (and a writer) and a line here. It must not know what is in a format beyond the keys
that tell formats apart.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tao.traces.errors import BadLine, OnBadLine, TraceError, refuse
from tao.traces.lines import documents, trace_files
from tao.traces.model import TraceSession
from tao.traces.readers import Reader
from tao.traces.readers.claude_code import ClaudeCodeReader
from tao.traces.readers.codex import CodexReader
from tao.traces.readers.dynamo import DynamoReader
from tao.traces.readers.mooncake import aiperf_mooncake_reader, mooncake_reader
from tao.traces.readers.native import NativeReader
from tao.traces.readers.tracelab import tracelab_reader
from tao.traces.readers.weka import WekaReader
from tao.traces.writers.aiperf import write_aiperf_mooncake
from tao.traces.writers.dynamo import write_dynamo_agentic
from tao.traces.writers.native import write_native

Write = Callable[[Path, Iterable[TraceSession]], int]
AUTO = "auto"
RECORDS_LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """`recognises` looks at one decoded record; formats are asked in the order of FORMATS."""

    name: str
    title: str
    recognises: Callable[[dict[str, Any]], bool]
    new_reader: Callable[[], Reader]
    write: Write | None = None


_CLAUDE_TYPES = frozenset({"user", "assistant", "summary", "system", "file-history-snapshot", "mode"})
_CODEX_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})


def _kind(record: dict[str, Any]) -> str | None:
    kind = record.get("type")
    return kind if isinstance(kind, str) else None


FORMATS = (
    TraceFormat(
        "tao",
        "ours: one session a line",
        lambda r: "turns" in r and "session_id" in r,
        NativeReader,
        write_native,
    ),
    TraceFormat(
        "weka",
        "Weka / AgentX: one JSON document a session",
        lambda r: "requests" in r and "id" in r,
        WekaReader,
    ),
    TraceFormat(
        "dynamo-agentic",
        "Dynamo's agentic Mooncake: one request a line, with dependencies",
        lambda r: "request_id" in r and "input_length" in r,
        DynamoReader,
        write_dynamo_agentic,
    ),
    TraceFormat(
        "tracelab",
        "TraceLab: one round a line",
        lambda r: "input_tokens_total" in r and "session_id" in r,
        tracelab_reader,
    ),
    TraceFormat(
        "mooncake",
        "Mooncake: one request a line, whole prompts",
        lambda r: "input_length" in r and ("hash_ids" in r or "session_id" not in r),
        mooncake_reader,
    ),
    TraceFormat(
        "aiperf-mooncake",
        "Mooncake with AIPerf's sessions: later rows state what they add",
        lambda r: (
            "output_length" in r
            and not r.keys().isdisjoint(("input_length", "messages", "text_input", "payload"))
        ),
        aiperf_mooncake_reader,
        write_aiperf_mooncake,
    ),
    TraceFormat(
        "codex",
        "Codex CLI rollout: one file a session, anonymised on reading",
        lambda r: _kind(r) in _CODEX_TYPES and "payload" in r,
        CodexReader,
    ),
    TraceFormat(
        "claude-code",
        "Claude Code log: one file a session, anonymised on reading",
        lambda r: (
            _kind(r) in _CLAUDE_TYPES
            and not r.keys().isdisjoint(("sessionId", "uuid", "leafUuid", "messageId"))
        ),
        ClaudeCodeReader,
    ),
)


def format_named(name: str) -> TraceFormat:
    """The format of that name; raises TraceError that lists the names."""
    for one in FORMATS:
        if one.name == name:
            return one
    raise TraceError(f"unknown trace format {name!r}; known are {', '.join(one.name for one in FORMATS)}")


def detect_format(path: Path | str) -> TraceFormat:
    """Tell the format by the first records of the first file; raises TraceError if none fits."""
    path = Path(path)
    first_bad: str | None = None
    records = 0
    for file in trace_files(path):
        for looked_at, (number, text) in enumerate(documents(file)):
            if looked_at == RECORDS_LOOKED_AT:
                break
            try:
                record = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                first_bad = first_bad or f"{file}:{number}: not JSON: {error}"
                continue
            records += 1
            found = next(
                (one for one in FORMATS if isinstance(record, dict) and one.recognises(record)), None
            )
            if found is not None:
                return found
    if not records:
        raise TraceError(first_bad or f"{path}: the trace is empty")
    raise TraceError(
        f"{path}: no known trace format ({', '.join(one.name for one in FORMATS)}); "
        "name the format if its first records are unusual"
    )


def read_trace(
    path: Path | str, *, trace_format: str = AUTO, on_bad_line: OnBadLine = refuse
) -> Iterator[TraceSession]:
    """Yield the sessions of a file, or of all trace files below a folder, in a fixed order.

    `trace_format` is a name of FORMATS, or `auto`. Raises TraceError for what cannot be read and, by default,
    for the first bad line: broken JSON, a field missing or out of range, a session id used before.
    """
    path = Path(path)
    chosen = detect_format(path) if trace_format == AUTO else format_named(trace_format)
    reader = chosen.new_reader()
    checked = _Check(on_bad_line)
    for file in trace_files(path):
        for number, session in reader.read(file, on_bad_line):
            if checked.passes(file, number, session):
                yield session


def read_native(path: Path | str, *, on_bad_line: OnBadLine = refuse) -> Iterator[TraceSession]:
    """`read_trace` of our own format."""
    return read_trace(path, trace_format="tao", on_bad_line=on_bad_line)


class _Check:
    """What holds for the sessions of any format: the ranges of the model, and ids used once."""

    def __init__(self, on_bad_line: OnBadLine) -> None:
        self._on_bad_line = on_bad_line
        self._seen: dict[str, tuple[Path, int]] = {}
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(TraceSession)

    def passes(self, file: Path, number: int, session: TraceSession) -> bool:
        try:
            self._decoder.decode(self._encoder.encode(session))
        except (msgspec.DecodeError, UnicodeError, ValueError) as error:
            self._on_bad_line(BadLine(str(file), number, f"not a possible session: {error}"))
            return False
        before = self._seen.get(session.session_id)
        if before is not None:
            where = f"on line {before[1]}" if before[0] == file else f"in {before[0]}:{before[1]}"
            self._on_bad_line(
                BadLine(str(file), number, f"session id {session.session_id!r} is also {where}")
            )
            return False
        self._seen[session.session_id] = (file, number)
        return True
