"""One emulated replica without HTTP: it answers turns and knows the engine loop, the script and the names it
serves.

It must not know sockets or status lines.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from hashlib import blake2b

from tao.emulator.answer import Answer, compose, drawn_tokens, filler
from tao.emulator.engine_loop import EngineLoop, Progress
from tao.emulator.fields import BadRequestError
from tao.emulator.kv_events import KvEvents
from tao.emulator.script import Script
from tao.emulator.turn import Dialect, Reply, Turn
from tao.enginemodel import EngineModel, Profile, Request, RequestRefusedError


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    """Settings of one emulated replica.

    `speed` is model seconds per wall-clock second; `kv_tokens` and `model` default to the profile's.
    `kv_events` and `kv_events_replay` are ZMQ endpoints to bind, such as tcp://127.0.0.1:*; `port` 0 lets
    the system choose. `kv_events_echo`: whether events name the session of a request, as vLLM from 0.32 does.
    """

    profile: Profile
    host: str = "127.0.0.1"
    port: int = 0
    kv_tokens: int | None = None
    speed: float = 1.0
    model: str | None = None
    seed: int = 0
    script: Script | None = None
    kv_events: str | None = None
    kv_events_replay: str | None = None
    kv_events_topic: str = "kv-events"
    kv_events_echo: bool = True
    body_bytes_max: int = 64 * 1024 * 1024

    @property
    def served_model(self) -> str:
        return self.model or self.profile.model


class Service:
    """Create it inside a running event loop; `close` it."""

    def __init__(self, config: EmulatorConfig) -> None:
        self.config = config
        profile = config.profile
        self.kv_events = (
            None
            if config.kv_events is None
            else KvEvents(
                config.kv_events, config.kv_events_replay, config.kv_events_topic, profile.block_tokens
            )
        )
        self.model = EngineModel(profile, config.kv_tokens, self.kv_events)
        self.loop = EngineLoop(self.model, config.speed, self._after_step)
        self.started = int(time.time())
        self._numbers = itertools.count(1)

    def start(self, dialect: Dialect, turn: Turn, session_id: str | None) -> tuple[Reply, Progress]:
        """Submit a turn. Raises BadRequestError with the status that says why not."""
        self.check_model(turn.model)
        reply_id = f"{dialect.id_prefix}{self.config.seed:08x}{next(self._numbers):012x}"
        answer = self._answer(turn, reply_id)
        reply = Reply(reply_id, turn.model or self.config.served_model, int(time.time()), turn, answer)
        session = turn.session_id or session_id
        if session is not None and self.kv_events is not None and self.config.kv_events_echo:
            self.kv_events.name_session(reply_id, session)
        request = Request(reply_id, turn.prompt, answer.tokens, answer.segments)
        try:
            return reply, self.loop.submit(request, wants_tokens=turn.stream)
        except RequestRefusedError as error:
            self._forget(reply_id)
            raise BadRequestError(f"This request cannot be served: {error}.") from error
        except asyncio.QueueFull as error:
            self._forget(reply_id)
            raise BadRequestError(
                "The emulator holds too many requests; try again later.", status=503
            ) from error

    def end(self, reply: Reply, progress: Progress) -> None:
        """A response has ended, in whatever way: called exactly once for each `start`."""
        if progress.done:
            self.loop.finished_reasons[reply.answer.finish_reason] += 1
        else:
            self.loop.abort(reply.id)
        self._forget(reply.id)

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.config.served_model:
            raise BadRequestError(
                f"The model `{name}` does not exist; this replica serves `{self.config.served_model}`.",
                status=404,
                field="model",
            )

    def close(self) -> None:
        self.loop.close()
        if self.kv_events is not None:
            self.kv_events.close()

    def _forget(self, reply_id: str) -> None:
        if self.kv_events is not None:
            self.kv_events.forget(reply_id)

    def _after_step(self) -> None:
        if self.kv_events is not None:
            self.kv_events.flush()

    def _answer(self, turn: Turn, reply_id: str) -> Answer:
        """The scripted answer, else filler of a length that follows from the seed and the prompt."""
        room = self.config.profile.max_model_tokens - turn.prompt.tokens
        if room < 1 or (turn.output_tokens_max or 1) > room:
            raise BadRequestError(
                f"This model's maximum context length is {self.config.profile.max_model_tokens} tokens. However, you "
                f"requested {turn.output_tokens_max or 1} output tokens and your prompt contains "
                f"{turn.prompt.tokens} tokens. Please reduce the length of the prompt or the output."
            )
        limit = turn.output_tokens_max or room
        if self.config.script is not None and not turn.ignore_eos:
            parts = self.config.script.answer(turn.conversation, f"call_{reply_id[-12:]}_")
            if parts is not None:
                return compose(parts, limit)
        seed = self._draw(turn)
        tokens = limit if turn.ignore_eos else max(drawn_tokens(seed), turn.output_tokens_min)
        answer = compose([filler(seed, min(tokens, limit))], limit)
        if tokens >= limit:
            return Answer(answer.parts, answer.tokens, answer.segments, "length")
        return answer

    def _draw(self, turn: Turn) -> str:
        last = turn.conversation.messages[-1].text() if turn.conversation.messages else ""
        digest = blake2b(last.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return f"{self.config.seed}:{turn.prompt.tokens}:{digest}"
