"""What an agent wraps its tools with: a decorator and a context manager, for plain functions and for coroutines.

It only says what happened; how that is sent is the sender's. Mistakes in setting it up raise, nothing later does.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from math import isfinite
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload
from uuid import uuid4

from tao.client.sender import Sender

NAME_CHARS_MAX = 128
COMMAND_CHARS_MAX = 16_384

P = ParamSpec("P")
R = TypeVar("R")
SessionName = str | Callable[[], str | None]
"""A session's id, or what finds the present one; None where there is none, and then nothing is reported."""


class ToolEvents:
    """Tool events of any number of sessions to one gateway.

    `url`: the gateway's, with or without /v1. `api_key` is sent as `Authorization: Bearer`; a client that sends its turns
    with another credential gives the same in `headers`. Raises `ValueError` for what is no URL.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        credential = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self.sender = Sender(url, {**credential, **(headers or {})})

    def session(self, session: SessionName) -> "SessionTools":
        """The tools of a session: the id that its turns carry, or a function that tells it."""
        if not session:
            raise ValueError("the session's id is empty; give the one that its turns carry")
        return SessionTools(self.sender, session)

    def flush(self, seconds_max: float = 1.0) -> bool:
        """Wait until what was reported is on its way; False when that took too long."""
        return self.sender.flush(seconds_max)

    def close(self) -> None:
        """Flush, and end the thread."""
        self.sender.close()


class SessionTools:
    """Wraps the tools of one session, or of whichever is the present one."""

    def __init__(self, sender: Sender, session: SessionName) -> None:
        self._sender = sender
        self._session = session

    def running(
        self,
        tool: str,
        *,
        call_id: str | None = None,
        command: str | None = None,
        expected_seconds: float | None = None,
    ) -> "RunningTool":
        """A context manager, plain or async, around a tool call. `call_id`: best the model's own."""
        return RunningTool(self, tool, call_id or uuid4().hex, command, expected_seconds)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(
        self, function: None = None, /, *, name: str | None = None, expected_seconds: float | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        expected_seconds: float | None = None,
    ) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function or a coroutine function: each call of it is a tool call."""

        def decorate(inner: Callable[P, R]) -> Callable[P, R]:
            return self._wrapped(inner, name or str(getattr(inner, "__name__", "tool")), expected_seconds)

        return decorate if function is None else decorate(function)

    def report(self, event: str, call_id: str, **fields: object) -> None:
        """Send one event; fields that are None are left out. Never raises."""
        try:
            session = self._session() if callable(self._session) else self._session
            if session:
                told = {name: value for name, value in fields.items() if value is not None}
                self._sender.send({"session": session, "event": event, "call_id": call_id, **told})
        except Exception:
            self._sender.dropped += 1

    def _wrapped(self, inner: Callable[P, R], name: str, expected_seconds: float | None) -> Callable[P, R]:
        if inspect.iscoroutinefunction(inner):

            @functools.wraps(inner)
            async def asynchronous(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self.running(name, expected_seconds=expected_seconds):
                    return await inner(*args, **kwargs)

            return asynchronous  # type: ignore[return-value]  # a coroutine function for a coroutine function

        @functools.wraps(inner)
        def plain(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.running(name, expected_seconds=expected_seconds):
                return inner(*args, **kwargs)

        return plain


class RunningTool:
    """One tool call while it runs. Each method says how far it is; none raises."""

    def __init__(
        self,
        tools: SessionTools,
        name: str,
        call_id: str,
        command: str | None,
        expected_seconds: float | None,
    ) -> None:
        self._tools = tools
        self._name = name[:NAME_CHARS_MAX]
        self._call_id = call_id
        self._command = command
        self._expected_seconds = expected_seconds

    def progress(self, fraction_done: float) -> None:
        """So much of it is done, 0 to 1."""
        fraction = _number(fraction_done)
        if fraction is not None:
            self._tell("progress", fraction_done=min(fraction, 1.0))

    def deadline(self, remaining_seconds: float) -> None:
        """It will be back after this time."""
        seconds = _number(remaining_seconds)
        if seconds is not None:
            self._tell("deadline", remaining_seconds=seconds)

    def _tell(self, event: str, **fields: object) -> None:
        self._tools.report(event, self._call_id, tool=self._name, **fields)

    def __enter__(self) -> "RunningTool":
        command = self._command[:COMMAND_CHARS_MAX] if isinstance(self._command, str) else None
        self._tell("start", command=command, expected_seconds=_number(self._expected_seconds))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell("end")

    async def __aenter__(self) -> "RunningTool":
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def _number(value: object) -> float | None:
    """A finite number that is not negative, else None."""
    usable = isinstance(value, int | float) and isfinite(value) and value >= 0
    return float(value) if usable else None  # type: ignore[arg-type]  # just checked
