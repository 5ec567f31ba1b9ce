"""The closed loop: W workers, each runs one session's turns after another, waiting for tools in between.

A turn that failed for good ends its session. Children (sub-agents) start when the parent's turn has ended,
beside the workers; the parent's tool phase then lasts until its children have ended. It must not know the
wire format or how texts are made.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import aiohttp

from tao.record.measure import TurnMeasurement
from tao.replay.client import ChatClient
from tao.replay.clock import ModelClock
from tao.replay.config import ReplayConfig
from tao.replay.conversation import SHARED_SHARE_MAX, Conversation, SharedPrompts
from tao.replay.endpoint import first_model, open_http, tokenized_length
from tao.replay.progress import OnProgress, Tally
from tao.replay.text import TextPool, TokenRatio
from tao.replay.tools import ToolTeller
from tao.replay.turn import TurnRunner
from tao.traces.delay import fixed_delay_seconds
from tao.traces.family import family_trees
from tao.traces.model import TraceSession

CALIBRATION_CHARS = 8_000


async def replay(
    config: ReplayConfig, sessions: Sequence[TraceSession], on_progress: OnProgress | None = None
) -> list[TurnMeasurement]:
    """Run all sessions and return their turns in the order they ended.

    Raises EndpointError if the endpoint cannot be used at all, ValueError if session ids are not unique;
    errors of single turns are in the measurements. Cancelling it closes every connection.
    """
    run = Replay(config, sessions, on_progress)
    await run.run()
    return run.measurements


class Replay:
    """One replay. `measurements` and `failures` may be read while it runs and after it was cancelled."""

    def __init__(
        self, config: ReplayConfig, sessions: Sequence[TraceSession], on_progress: OnProgress | None = None
    ) -> None:
        self.model = config.model or ""
        self.lag_seconds_max = 0.0
        """The latest that the end of a wait was noticed, model seconds: much means that this client is
        overloaded.
        """
        self._config = config
        self._roots, self._children = family_trees(sessions)
        self._clock = ModelClock(config.speed)
        self._tally = Tally(sessions, self._clock.now, on_progress)
        self._ratio = TokenRatio(config.chars_per_token)
        self._pool = TextPool(config.seed)
        self._shared = SharedPrompts(self._pool, self._ratio)
        self._teller: ToolTeller | None = None

    @property
    def reports_failed(self) -> int:
        """Reports of tools that the endpoint did not take."""
        return 0 if self._teller is None else self._teller.failures

    @property
    def measurements(self) -> list[TurnMeasurement]:
        """The turns that have ended, in that order."""
        return self._tally.measurements

    @property
    def failures(self) -> dict[str, str]:
        """What an endpoint said at the first failure of each kind."""
        return self._tally.failures

    async def run(self) -> None:
        """Run to the end. Use once."""
        config = self._config
        async with open_http(config) as http:
            self.model = config.model or await first_model(http, config.base_url)
            if config.chars_per_token is None:
                await self._calibrate(http)
            client = ChatClient(
                http, config.base_url, self.model, config.turn_wall_seconds_max, self._clock.now
            )
            turns = TurnRunner(config, client, self._clock, self._tally)
            self._teller = ToolTeller(http, config, self._clock)
            waiting = deque(self._roots)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(config.concurrency, len(waiting))):
                    group.create_task(self._work(waiting, turns, group))

    async def _calibrate(self, http: aiohttp.ClientSession) -> None:
        text = self._pool.named("calibration", CALIBRATION_CHARS)
        tokens = await tokenized_length(http, self._config.base_url, self.model, text)
        if tokens is not None:
            self._ratio.observe(len(text), tokens)

    async def _work(self, waiting: deque[TraceSession], turns: TurnRunner, group: asyncio.TaskGroup) -> None:
        while waiting:
            await self._run_session(waiting.popleft(), turns, group)

    async def _run_session(self, session: TraceSession, turns: TurnRunner, group: asyncio.TaskGroup) -> None:
        conversation = self._conversation(session)
        tool_ended_at: float | None = None
        for index, turn in enumerate(session.turns):
            conversation.extend(turn.prompt_tokens, new_prefix=session.starts_new_prefix(index))
            measured = await turns.run(session, index, conversation, tool_ended_at=tool_ended_at)
            if measured.error is not None:
                self._tally.session_failed()
                return
            children = [
                group.create_task(self._run_session(child, turns, group))
                for child in self._children.get((session.session_id, index), ())
            ]
            if index + 1 < len(session.turns):
                if self._teller is not None:
                    seconds = self._tool_seconds(session, index)
                    group.create_task(self._teller.started(session, index, seconds))
                tool_ended_at = await self._wait_after(session, index, measured.finished_at, children)
        self._tally.session_done()

    async def _wait_after(
        self, session: TraceSession, index: int, finished_at: float, children: list[asyncio.Task[None]]
    ) -> float | None:
        """Wait for tool, children and human; when the tool ended, None if it was a human who ended the
        wait.
        """
        turn = session.turns[index]
        human_seconds = min(turn.human_seconds, self._config.human_wait_seconds_max)
        ends_at = finished_at + self._tool_seconds(session, index) + human_seconds
        if children and turn.tool is not None and not turn.tool.background:
            await asyncio.wait(children)
            ends_at = self._clock.now() + human_seconds
        await self._clock.sleep_until(ends_at)
        self.lag_seconds_max = max(self.lag_seconds_max, self._clock.now() - ends_at)
        tool_was_last = turn.tool is not None and not turn.tool.is_human and not human_seconds
        return self._clock.now() if tool_was_last else None

    def _tool_seconds(self, session: TraceSession, index: int) -> float:
        """How long the tool after a turn takes, the session's own delay included; 0 without a tool."""
        tool, span = session.turns[index].tool, self._config.tool_delay_seconds
        if tool is None or tool.is_human:
            return 0.0
        delay_seconds = (
            0.0 if span is None else fixed_delay_seconds(session.session_id, span, self._config.seed)
        )
        return tool.duration_seconds + delay_seconds

    def _conversation(self, session: TraceSession) -> Conversation:
        shared = session.shared_prefix_tokens
        tokens = self._config.system_tokens if shared is None else shared
        tokens = min(tokens, int(session.turns[0].prompt_tokens * SHARED_SHARE_MAX))
        source = session.source or session.agent or "sessions"
        system = self._shared.prompt(f"system of {source}", tokens) if tokens > 0 else None
        task: str | None = None
        if session.prompt_group is not None:
            task_tokens = max(1, session.turns[0].prompt_tokens - max(0, tokens))
            task = self._shared.prompt(f"task of {self._config.run_id}{session.prompt_group}", task_tokens)
        name = self._config.run_id + session.session_id
        return Conversation(name, system, self._pool, self._ratio, self._config.seed, task=task)
