"""What the gateway's own record of its events says of a run: the figures that stand beside aiperf's.

The times are the gateway's: from a request's arrival to its first token and its end. It must not know aiperf.
"""

from collections.abc import Iterator
from pathlib import Path

from tao.core import events as ev
from tao.record.log import read_log
from tao.record.measure import TurnMeasurement


def measured_turns(log: Path) -> list[TurnMeasurement]:
    """The turns of a recorded log, in the order in which they ended. Raises `LogError`."""
    return list(_turns(log))


def _turns(log: Path) -> Iterator[TurnMeasurement]:
    arrived: dict[str, ev.TurnArrived] = {}
    first: dict[str, float] = {}
    counts: dict[str, int] = {}
    for entry in read_log(log):
        match entry.event:
            case ev.TurnArrived() as event:
                arrived[event.turn] = event
            case ev.FirstToken(at=at, turn=turn):
                first[turn] = at
            case ev.TurnFinished(at=at, turn=turn, usage=usage):
                yield _turn(arrived[turn], counts, at, first.get(turn), usage, None)
            case ev.TurnFailed(at=at, turn=turn, cause=cause):
                yield _turn(arrived[turn], counts, at, first.get(turn), None, cause)
            case ev.ClientLeft(at=at, turn=turn):
                yield _turn(arrived[turn], counts, at, first.get(turn), None, "client left")
            case _:
                pass


def _turn(
    arrived: ev.TurnArrived,
    counts: dict[str, int],
    at: float,
    first: float | None,
    usage: ev.Usage | None,
    error: str | None,
) -> TurnMeasurement:
    index = counts.get(arrived.session, 0)
    counts[arrived.session] = index + 1
    return TurnMeasurement(
        arrived.session,
        index,
        arrived.at,
        at,
        first_token_at=first,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        output_tokens=None if usage is None else usage.output_tokens,
        error=error,
    )
