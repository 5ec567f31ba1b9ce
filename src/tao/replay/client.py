"""One attempt at one turn over HTTP: send, stream, and say what came back or which kind of error it was.

It never raises for what an endpoint may do, only for cancellation. It must not know sessions, traces, or
retries.
"""

import asyncio
import email.utils
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec

from tao.replay.reasons import reason_of
from tao.replay.sse import EventReader
from tao.replay.wire import Chunk, Usage

RETRY_AFTER_WALL_SECONDS_MAX = 60.0
NOTICE_WALL_SECONDS_MAX = 5.0
HOLD_HEADER = "x-tao-hold-seconds"
DECISION_HEADER = "x-tao-decision"
HELD_DECISION = "held"


@dataclass(slots=True)
class Attempt:
    """What one attempt gave. `error` is None when the whole answer came; times are of the caller's clock.

    Kinds of error: `connect`, `timeout`, `disconnected` (before the status line), `http_<status>`,
    `stream_cut` (ended without its end), `stream_error` (an error event in the stream), `bad_response` (not a
    chat stream).
    """

    error: str | None = None
    detail: str = ""
    first_token_at: float | None = None
    text: list[str] = field(default_factory=list)
    usage: Usage | None = None
    hold_seconds: float | None = None
    hold_is_told: bool = False
    retry_after_wall_seconds: float | None = None
    ended: bool = False

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt may succeed: the server's trouble, neither the request's nor a deadline."""
        if self.error is None or self.error in ("timeout", "bad_response"):
            return False
        if self.error.startswith("http_"):
            status = int(self.error.removeprefix("http_"))
            return status in (408, 409, 429) or status >= 500
        return True


@dataclass(frozen=True, slots=True)
class ChatClient:
    """Chat completions against one endpoint. `now` gives the time put on first tokens."""

    http: aiohttp.ClientSession
    base_url: str
    model: str
    turn_wall_seconds_max: float
    now: Callable[[], float]

    async def attempt(
        self, messages: bytes, output_tokens: int, headers: dict[str, str], fields: Mapping[str, str]
    ) -> Attempt:
        """Stream one answer of `output_tokens` tokens, if the endpoint honours `ignore_eos`; `fields` go into the body."""
        attempt = Attempt()
        try:
            async with asyncio.timeout(self.turn_wall_seconds_max):
                await self._stream(self._body(messages, output_tokens, fields), headers, attempt)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            _fail(attempt, "connect", reason_of(error))
        except TimeoutError:
            _fail(attempt, "timeout", f"no complete answer within {self.turn_wall_seconds_max:g} s")
        except (aiohttp.ClientPayloadError, ConnectionResetError) as error:
            _fail(attempt, "stream_cut", str(error))
        except aiohttp.ServerDisconnectedError as error:
            _fail(attempt, "disconnected", str(error))
        except aiohttp.ClientOSError as error:
            _fail(attempt, "disconnected", str(error))
        except (aiohttp.ClientError, ValueError) as error:
            _fail(attempt, "bad_response", f"{type(error).__name__}: {error}")
        return attempt

    async def notify(self, path: str, fields: Mapping[str, str]) -> str | None:
        """Post a short notice beside the turns; what went wrong, None if it was taken."""
        timeout = aiohttp.ClientTimeout(total=NOTICE_WALL_SECONDS_MAX)
        body = msgspec.json.encode(fields)
        try:
            async with self.http.post(f"{self.base_url}{path}", data=body, timeout=timeout) as response:
                return None if response.status < 400 else f"status {response.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return reason_of(error)

    def _body(self, messages: bytes, output_tokens: int, fields: Mapping[str, str]) -> bytes:
        rest = msgspec.json.encode(
            {
                "max_tokens": max(1, output_tokens),
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                **fields,
            }
        )
        return b'{"model":' + msgspec.json.encode(self.model) + b',"messages":' + messages + b"," + rest[1:]

    async def _stream(self, body: bytes, headers: dict[str, str], attempt: Attempt) -> None:
        url = f"{self.base_url}/v1/chat/completions"
        sent_at = self.now()
        async with self.http.post(url, data=body, headers=headers) as response:
            attempt.hold_seconds = _number(response.headers.get(HOLD_HEADER))
            if response.status != 200:
                detail = (await response.content.read(2000)).decode(errors="replace")
                attempt.retry_after_wall_seconds = retry_after_seconds(response.headers.get("Retry-After"))
                _fail(attempt, f"http_{response.status}", detail)
                return
            if response.content_type == "application/json":
                self._take(attempt, await response.read(), self.now())
                attempt.ended = True
                return
            held = response.headers.get(DECISION_HEADER, "").startswith(HELD_DECISION)
            reader = EventReader()
            async for piece in response.content.iter_any():
                now = self.now()
                events = reader.feed(piece)
                for comment in reader.comments:  # what came with the first token was sent before it
                    _note_hold(attempt, comment, now - sent_at if held else None)
                for data in events:
                    self._take(attempt, data, now)
            for data in reader.close():
                self._take(attempt, data, self.now())
        if attempt.error is None and not attempt.ended:
            _fail(attempt, "stream_cut", "the stream ended without a finish reason or [DONE]")

    def _take(self, attempt: Attempt, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            attempt.ended = True
            return
        try:
            chunk = msgspec.json.decode(data, type=Chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _fail(attempt, "bad_response", f"{error}: {data[:200]!r}")
            return
        if chunk.error is not None:
            _fail(attempt, "stream_error", msgspec.json.encode(chunk.error).decode()[:500])
        for choice in chunk.choices:
            attempt.text.append(choice.text)
            attempt.ended = attempt.ended or choice.finish_reason is not None
            if choice.has_token and attempt.first_token_at is None:
                attempt.first_token_at = now
        if chunk.usage is not None:
            attempt.usage = chunk.usage


def _note_hold(attempt: Attempt, comment: bytes, held_for: float | None) -> None:
    """Read a comment of a held stream, whose headers went out before its hold time was known.

    The gateway may say the time in a comment of the header's form. Until then each comment shows that the
    stream was held up to now (`held_for`, None if the stream was not held), so the time noted is low by at
    most one period.
    """
    name, _, value = comment.decode("latin-1").partition(":")
    told = _number(value.strip()) if name.strip().lower() == HOLD_HEADER else None
    if told is not None:
        attempt.hold_seconds = told
        attempt.hold_is_told = True
    elif held_for is not None and not attempt.hold_is_told and attempt.first_token_at is None:
        attempt.hold_seconds = held_for


def _fail(attempt: Attempt, kind: str, detail: str) -> None:
    """The first error of an attempt is the one that counts."""
    if attempt.error is None:
        attempt.error, attempt.detail = kind, detail


def retry_after_seconds(value: str | None) -> float | None:
    """Seconds asked for by a Retry-After header (a number or an HTTP date), within 0-60; None if
    unreadable.
    """
    if value is None:
        return None
    seconds = _number(value)
    if seconds is None:
        parsed = email.utils.parsedate_tz(value)
        if parsed is None:
            return None
        seconds = email.utils.mktime_tz(parsed) - time.time()
    return min(max(seconds, 0.0), RETRY_AFTER_WALL_SECONDS_MAX)


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e9 else None
