"""Writes Mooncake rows with AIPerf's session fields: the first row whole, later ones what they add.

AIPerf lets a session's history only grow, so a session is cut at each compaction into sessions of its own,
`id#2` and so on, which start when the part before them ended in the recording. Tool and human time become one
`delay`; sub-agents become plain sessions. It must not know how sessions were read.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tao.traces.lines import open_output
from tao.traces.model import TraceSession, TraceTurn

MILLISECONDS = 1000.0


def write_aiperf_mooncake(path: Path | str, sessions: Iterable[TraceSession]) -> int:
    encoder = msgspec.json.Encoder()
    count = 0
    with open_output(Path(path)) as stream:
        for session in sessions:
            for row in _rows(session):
                stream.write(encoder.encode(row) + b"\n")
            count += 1
    return count


def _rows(session: TraceSession) -> Iterator[dict[str, object]]:
    at_seconds = session.start_offset_seconds
    part, name = 0, session.session_id
    before: TraceTurn | None = None
    for index, turn in enumerate(session.turns):
        wait_seconds = before.tool_seconds + before.human_seconds if before is not None else 0.0
        at_seconds += wait_seconds
        if before is None or session.starts_new_prefix(index):
            part += 1
            name = session.session_id if part == 1 else f"{session.session_id}#{part}"
            when = {"timestamp": round(at_seconds * MILLISECONDS, 3)}
            added = turn.prompt_tokens
        else:
            when = {"delay": round(wait_seconds * MILLISECONDS, 3)}
            added = max(1, turn.prompt_tokens - before.prompt_tokens - before.output_tokens)
        yield {"session_id": name, **when, "input_length": added, "output_length": turn.output_tokens}
        at_seconds += turn.llm_seconds or 0.0
        before = turn
