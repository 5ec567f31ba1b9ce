"""A small HTTP client of one engine: pages, one request, one stream with the time of each piece.

Every wait has a bound. It must not know what the answers mean to anybody.
"""

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

PAGE_BYTES_MAX = 16 << 20
CONNECT_SECONDS = 5.0


class EngineError(Exception):
    """The engine cannot be reached, answers too late, or refuses; the message says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `path`: what was asked for."""

    status: int
    body: bytes
    path: str = ""

    @property
    def document(self) -> Any:
        """The body as JSON; None where it is none. Raises `EngineError` where nobody could read it."""
        return _document(self.body, self.path)

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty where it is none. Raises `EngineError` where nobody could read it."""
        document = self.document
        return document if isinstance(document, dict) else {}


@dataclass(frozen=True, slots=True)
class Stream:
    """A streamed answer: when it was asked for, when each piece with output came (seconds), and its last usage."""

    asked_at: float
    pieces_at: tuple[float, ...]
    usage: dict[str, Any] | None

    @property
    def prompt_tokens(self) -> int:
        return int((self.usage or {}).get("prompt_tokens") or 0)

    @property
    def output_tokens(self) -> int:
        return int((self.usage or {}).get("completion_tokens") or 0)

    @property
    def cached_tokens(self) -> int | None:
        """None where the engine does not tell."""
        details = (self.usage or {}).get("prompt_tokens_details")
        told = details.get("cached_tokens") if isinstance(details, dict) else None
        return told if isinstance(told, int) else None


class EngineClient:
    """One engine. Use it as an asynchronous context manager."""

    def __init__(self, base_url: str, *, api_key: str | None = None, timeout_seconds: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "EngineClient":
        self._http = aiohttp.ClientSession(
            headers=self._headers,
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._http is not None
        await self._http.close()

    async def get(self, path: str) -> Answer:
        """A page. Raises `EngineError` where there is no answer at all."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, document: dict[str, Any]) -> Answer:
        """One request. Raises `EngineError` where there is no answer at all."""
        return await self._ask("POST", path, document)

    async def stream(self, path: str, document: dict[str, Any]) -> Stream:
        """One streamed answer with its usage. Raises `EngineError`, also for a status other than 200."""
        assert self._http is not None
        asked = {**document, "stream": True, "stream_options": {"include_usage": True}}
        pieces_at: list[float] = []
        usage: dict[str, Any] | None = None
        asked_at = time.perf_counter()
        try:
            async with self._http.post(self.base_url + path, json=asked) as answer:
                if answer.status != 200:
                    told = (await answer.content.read(500)).decode("utf-8", "replace")
                    raise EngineError(f"{path} answers {answer.status}: {told}")
                async for line in answer.content:
                    now = time.perf_counter()
                    event = _event(line, path)
                    if event is None:
                        continue
                    if isinstance(event.get("usage"), dict):
                        usage = event["usage"]
                    if event.get("choices"):
                        pieces_at.append(now)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise EngineError(_reason(error, path)) from None
        return Stream(asked_at, tuple(pieces_at), usage)

    async def _ask(self, method: str, path: str, document: dict[str, Any] | None) -> Answer:
        assert self._http is not None
        try:
            async with self._http.request(
                method, self.base_url + path, json=document, allow_redirects=False
            ) as answer:
                return Answer(answer.status, await _bounded(answer), path)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise EngineError(_reason(error, path)) from None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = b""
    while len(body) < PAGE_BYTES_MAX and (more := await answer.content.read(PAGE_BYTES_MAX - len(body))):
        body += more
    return body


def _event(line: bytes, path: str) -> dict[str, Any] | None:
    """The JSON of a data line of an event stream."""
    if not line.startswith(b"data:") or line[5:].strip() in {b"", b"[DONE]"}:
        return None
    document = _document(line[5:], path)
    return document if isinstance(document, dict) else None


def _document(body: bytes, path: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise EngineError(f"{path}: its JSON is nested too deeply to be read: {body[:40]!r}...") from None


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"{path}: no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or error.os_error}"
    return f"{path}: {type(error).__name__}: {error}".removesuffix(": ")
