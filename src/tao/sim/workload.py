"""The load of a simulated run: recorded sessions, played by workers in a closed loop or arriving by chance.

A worker takes the next session when its last one has ended. Between two turns a session waits for its tool, its
sub-agents, or a human (capped). The workload knows when turns arrive; it does not know where they go.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tao.core.events import ToolCall
from tao.enginemodel import Chain, Request, Segment
from tao.sim.conversation import SHARED_SHARE_MAX, Conversation
from tao.traces.model import TraceSession, TraceTool, TraceTurn


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """`human_wait_seconds_max`: cap on each wait for a human. `system_tokens`: shared prompt where none is recorded.

    `tool_delay_seconds`: (least, most) of one fixed extra delay per session (paper, appendix G).
    """

    human_wait_seconds_max: float = 30.0
    system_tokens: int = 0
    tool_delay_seconds: tuple[float, float] | None = None
    seed: int = 0


class PlayedSession:
    """One recorded session while it is being played."""

    def __init__(self, trace: TraceSession, settings: WorkloadSettings) -> None:
        self.trace = trace
        self.next_turn = 0
        self.tool_ended_at: float | None = None
        self._settings = settings
        self._conversation = Conversation(trace.session_id, _system_of(trace, settings))
        self._delay_seconds = 0.0
        if settings.tool_delay_seconds is not None:
            chance = random.Random(f"{settings.seed} tool delay {trace.session_id}")  # noqa: S311
            self._delay_seconds = chance.uniform(*settings.tool_delay_seconds)

    @property
    def turn(self) -> TraceTurn:
        """The recorded turn to be played next."""
        return self.trace.turns[self.next_turn]

    @property
    def is_last(self) -> bool:
        """Whether the next turn is the session's last."""
        return self.next_turn + 1 == len(self.trace.turns)

    def starts_afresh(self) -> bool:
        """Whether the next turn's prompt is a new prefix after an earlier one: compaction."""
        return self.next_turn > 0 and self.trace.starts_new_prefix(self.next_turn)

    def request(self, request_id: str) -> Request:
        """The next turn as a request to an engine."""
        chain: Chain = self._conversation.extend(
            self.turn.prompt_tokens, new_prefix=self.trace.starts_new_prefix(self.next_turn)
        )
        return Request(request_id, chain, max(1, self.turn.output_tokens))

    def answered(self, request: Request) -> None:
        """The turn's answer becomes part of the conversation."""
        self._conversation.answered(request)

    def tools(self) -> tuple[ToolCall, ...]:
        """The tools that the next turn asks for, as a gateway would see them."""
        turn = self.turn
        if turn.tool is None or turn.tool.is_human:
            return ()
        return tuple(_tool_call(tool) for tool in (turn.tools or (turn.tool,)))

    def away_seconds(self) -> tuple[float, float]:
        """How long the session is away after the next turn: (tool, human)."""
        human = min(self.turn.human_seconds, self._settings.human_wait_seconds_max)
        has_tool = self.turn.tool is not None and not self.turn.tool.is_human
        return self.turn.tool_seconds + (self._delay_seconds if has_tool else 0.0), human


def _tool_call(tool: TraceTool) -> ToolCall:
    return ToolCall(
        tool.name, tool.command_head or "", tool.sleep_seconds, tool.declared_timeout_seconds, tool.background
    )


def _system_of(trace: TraceSession, settings: WorkloadSettings) -> Segment | None:
    shared = trace.shared_prefix_tokens
    tokens = settings.system_tokens if shared is None else shared
    tokens = min(tokens, int(trace.turns[0].prompt_tokens * SHARED_SHARE_MAX))
    return (("system", trace.source or trace.agent, tokens), tokens) if tokens > 0 else None


Start = Callable[[float, TraceSession], None]


class ClosedLoop:
    """`workers` workers; each starts the next session when its last one has ended."""

    def __init__(self, sessions: Sequence[TraceSession], workers: int) -> None:
        self._left = deque(sessions)
        self.workers = workers

    def first(self) -> Iterator[tuple[float, TraceSession]]:
        """Sessions that start by themselves, with their times."""
        for _ in range(min(self.workers, len(self._left))):
            yield 0.0, self._left.popleft()

    def after_end(self, at: float) -> tuple[float, TraceSession] | None:
        """The session that starts because one has ended."""
        return (at, self._left.popleft()) if self._left else None


class PoissonArrivals:
    """Sessions arrive by chance, `rate_per_second` on average, whatever becomes of the earlier ones."""

    def __init__(self, sessions: Sequence[TraceSession], rate_per_second: float, seed: int) -> None:
        if not rate_per_second > 0:
            raise ValueError(f"the arrival rate must be greater than 0, not {rate_per_second!r}")
        self._sessions = sessions
        self._rate_per_second = rate_per_second
        self._seed = seed
        self.workers = len(sessions)

    def first(self) -> Iterator[tuple[float, TraceSession]]:
        """All sessions, with their arrival times."""
        chance = random.Random(f"{self._seed} arrivals")  # noqa: S311 - repeatable, not a secret
        at = 0.0
        for session in self._sessions:
            at += chance.expovariate(self._rate_per_second)
            yield at, session

    def after_end(self, at: float) -> tuple[float, TraceSession] | None:  # noqa: ARG002
        """Nothing starts because something ended."""
        return None


Arrivals = ClosedLoop | PoissonArrivals
