"""The life of a session on one page: which event may meet which phase, and where it may lead.

This table is the authority. `Scheduler.handle` looks up (phase, event) before anything is changed: a pair without a row
is a late, duplicate or unknown event, which is counted and does nothing. After the handler ran, the phase it led to must
be one the row allows (asserted, also in production). The state diagram in the docs is generated from here.

Besides events from outside, six stimuli come from the core itself: `Placed` (a decision or a bound gave the session a
replica), `Interrupted` (it lost its admission at a tool boundary), `Lapsed` (it is overdue beyond belief),
`ChildrenEnded` (the sub-agents that its tools were have ended), `Refused` (its held turns were turned away) and `Expired`
(nothing was heard of it for the idle bound, or the table was full).

What the table does not show: turns. A phase names its turns; `session.py` says what a turn is.
"""

from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    SessionEnded,
    ToolBegan,
    ToolExpected,
    ToolFinished,
    ToolsMeasured,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnProgress,
    TurnStopped,
)
from tao.core.phases import Absent, Acting, Away, Closed, Phase, Running, Stopping, Waiting


class Placed:
    """The session was given a replica."""


class Interrupted:
    """The session lost its admission at a tool boundary."""


class Lapsed:
    """The session's tool is overdue beyond belief."""


class ChildrenEnded:
    """The sub-agents that the session's tools were waiting for have ended."""


class Refused:
    """The held turns of the session were turned away."""


class Expired:
    """The session was idle beyond the bound, or had to make room in a full table."""


Stimulus = (
    type[Event]
    | type[Placed]
    | type[Interrupted]
    | type[Lapsed]
    | type[ChildrenEnded]
    | type[Refused]
    | type[Expired]
)
PhaseType = type[Absent] | type[Phase]

TABLE: dict[tuple[PhaseType, Stimulus], tuple[PhaseType, ...]] = {
    # A session begins with its first turn; refused, it does not begin at all.
    (Absent, TurnArrived): (Waiting, Running, Absent),
    # Waiting: turns are held; the session is in the pool.
    (Waiting, TurnArrived): (Waiting, Running),
    (Waiting, ClientLeft): (Waiting, Away, Closed),
    (Waiting, SessionEnded): (Closed,),
    (Waiting, Placed): (Running,),
    (Waiting, Interrupted): (Waiting,),
    (Waiting, Refused): (Away, Closed),
    # Running: turns are on the engine. The phase is left when the last of them ends.
    (Running, TurnArrived): (Running,),
    (Running, FirstToken): (Running,),
    (Running, TurnProgress): (Running,),
    (Running, TurnFinished): (Running, Stopping, Acting, Closed),
    (Running, TurnFailed): (Running, Stopping, Away, Closed),
    (Running, TurnStopped): (Running, Stopping, Away, Closed),
    (Running, ClientLeft): (Running, Stopping),
    (Running, SessionEnded): (Running,),
    # Stopping: asked to stop, not yet stopped. A new turn brings the session back to Running.
    (Stopping, TurnArrived): (Running,),
    (Stopping, FirstToken): (Stopping,),
    (Stopping, TurnProgress): (Stopping,),
    (Stopping, TurnFinished): (Stopping, Acting, Closed),
    (Stopping, TurnFailed): (Stopping, Away, Closed),
    (Stopping, TurnStopped): (Stopping, Away, Closed),
    (Stopping, SessionEnded): (Stopping,),
    # Acting: a tool runs. With a home the session is admitted there, without one it is in the pool.
    (Acting, TurnArrived): (Waiting, Running, Acting),
    (Acting, ToolFinished): (Acting,),
    (Acting, ToolExpected): (Acting,),
    (Acting, ToolBegan): (Acting,),
    (Acting, ToolsMeasured): (Acting,),
    (Acting, ChildrenEnded): (Acting,),
    (Acting, SessionEnded): (Closed,),
    (Acting, Placed): (Acting,),
    (Acting, Interrupted): (Acting,),
    (Acting, Lapsed): (Away,),
    (Acting, Expired): (Closed,),
    # Away: the last turn did not finish, or the tool is overdue beyond belief. Nothing is held; it may come back.
    (Away, TurnArrived): (Waiting, Running, Away),
    (Away, ToolFinished): (Acting,),
    (Away, ToolExpected): (Acting,),
    (Away, ToolBegan): (Acting,),
    (Away, ToolsMeasured): (Away,),
    (Away, ChildrenEnded): (Acting,),
    (Away, SessionEnded): (Closed,),
    (Away, Expired): (Closed,),
}


def row(phase: PhaseType, stimulus: Stimulus) -> tuple[PhaseType, ...] | None:
    """The phases that may follow; None where the stimulus has no meaning in this phase."""
    return TABLE.get((phase, stimulus))


def check_row(before: object, stimulus: Stimulus, after: object) -> None:
    """Assert that the transition table allows what has just happened."""
    targets = TABLE.get((type(before), stimulus))  # type: ignore[arg-type]  # phases only, by construction
    assert targets is not None, f"{type(before).__name__} does not meet {stimulus.__name__}"
    assert type(after) in targets, f"{type(before).__name__} --{stimulus.__name__}--> {type(after).__name__}"


def mermaid() -> str:
    """The state diagram of the docs, in Mermaid's notation, one arrow per pair of phases."""
    labels: dict[tuple[str, str], list[str]] = {}
    for (phase, stimulus), targets in TABLE.items():
        for target in targets:
            source = "[*]" if phase is Absent else phase.__name__
            if target is not Absent:
                labels.setdefault((source, target.__name__), []).append(stimulus.__name__)
    lines = ["stateDiagram-v2"]
    for (start, end), names in labels.items():
        if start != end:
            lines.append(f"    {start} --> {end}: {', '.join(names)}")
    lines.append("    Closed --> [*]")
    return "\n".join(lines)
