"""One turn of a session: its headers, its attempts with the pauses between them, and what was measured.

It must not know how prompts are made or what happens between turns.
"""

import asyncio
import random
from dataclasses import dataclass
from urllib.parse import quote

from tao.record.measure import TurnMeasurement
from tao.replay.client import Attempt, ChatClient
from tao.replay.clock import ModelClock
from tao.replay.config import ReplayConfig
from tao.replay.conversation import Conversation
from tao.replay.progress import Tally
from tao.traces.model import TraceSession

PAUSE_WALL_SECONDS_FIRST = 0.5
PAUSE_WALL_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class TurnRunner:
    """Runs turns of any session against one endpoint."""

    config: ReplayConfig
    client: ChatClient
    clock: ModelClock
    tally: Tally

    async def run(
        self, session: TraceSession, index: int, conversation: Conversation, *, tool_ended_at: float | None
    ) -> TurnMeasurement:
        """Send the conversation as turn `index`, take the answer into it, and return the measurement."""
        messages = conversation.body_messages()
        arrived_at = self.clock.now()
        with self.tally.turn_in_flight():
            attempt, retried = await self._attempts(session, index, messages)
        usage = attempt.usage
        measured = TurnMeasurement(
            session_id=session.session_id,
            turn_index=index,
            arrived_at=arrived_at,
            finished_at=self.clock.now(),
            first_token_at=attempt.first_token_at,
            hold_seconds=attempt.hold_seconds,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            cached_tokens=usage.cached_tokens if usage is not None else None,
            output_tokens=usage.completion_tokens if usage is not None else None,
            tool_ended_at=tool_ended_at,
            error=attempt.error,
            retried=tuple(retried),
            parent_session_id=session.parent,
        )
        if attempt.error is None:
            conversation.answered("".join(attempt.text), measured.prompt_tokens, measured.output_tokens)
        self.tally.turn_ended(measured)
        if attempt.error is not None or index + 1 == len(session.turns):
            await self._release(session)
        return measured

    async def _attempts(
        self, session: TraceSession, index: int, messages: bytes
    ) -> tuple[Attempt, list[str]]:
        headers, fields = self._headers(session, index), self._fields(session)
        output_tokens = session.turns[index].output_tokens
        retried: list[str] = []
        while True:
            attempt = await self.client.attempt(messages, output_tokens, headers, fields)
            if attempt.error is None:
                return attempt, retried
            self.tally.attempt_failed(attempt.error, attempt.detail)
            if not attempt.is_retryable or len(retried) == self.config.retries_max:
                return attempt, retried
            retried.append(attempt.error)
            await asyncio.sleep(self._pause_wall_seconds(attempt, session.session_id, len(retried)))

    def _headers(self, session: TraceSession, index: int) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.config.session_header is not None:
            headers[self.config.session_header] = header_value(self.config.run_id + session.session_id)
            if session.parent is not None:
                headers["X-Parent-Session-ID"] = header_value(self.config.run_id + session.parent)
        if self.config.final_header is not None and index + 1 == len(session.turns):
            headers[self.config.final_header] = "true"
        return headers

    def _fields(self, session: TraceSession) -> dict[str, str]:
        name = self.config.session_field
        return {} if name is None else {name: self.config.run_id + session.session_id}

    async def _release(self, session: TraceSession) -> None:
        path = self.config.release_path
        problem = None if path is None else await self.client.notify(path, self._fields(session))
        if problem is not None:
            self.tally.attempt_failed("release", problem)

    def _pause_wall_seconds(self, attempt: Attempt, session_id: str, retry: int) -> float:
        if attempt.retry_after_wall_seconds is not None:
            return attempt.retry_after_wall_seconds
        longest = min(PAUSE_WALL_SECONDS_FIRST * 2.0 ** (retry - 1), PAUSE_WALL_SECONDS_MAX)
        spread = random.Random(f"{self.config.seed} {session_id} {retry}")  # noqa: S311 - spreads retries
        return longest * spread.uniform(0.5, 1.0)


def header_value(session_id: str) -> str:
    """The id as a header can carry it: printable ASCII stays, anything else is percent-encoded."""
    return quote(session_id, safe="!#$&'()*+,/:;=?@[]~|").strip()
