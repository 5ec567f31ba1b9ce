"""A LiteLLM callback: the tools that a response asked for begin, and have ended when their results go into the next request.

The session is learned from the `x-tao-session` header of TAO's answers, so the agent needs none of its own. LiteLLM is
imported when the callback is made, never before.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from tao.client.tools import ToolEvents

CALLS_MAX = 4096
SESSION_HEADER = "llm_provider-x-tao-session"


def tool_callback(events: ToolEvents) -> Any:
    """An instance for `litellm.callbacks`. Raises `ImportError` where LiteLLM is not installed."""
    logger = import_module("litellm.integrations.custom_logger").CustomLogger
    kind = type("TaoToolEvents", (LiteLLMToolEvents, logger), {})
    return kind(events)


class LiteLLMToolEvents:
    """The methods that LiteLLM calls; none of them raises.

    `open`: which session each running call belongs to; None for an id that several sessions had open at a time. Some models
    number their calls afresh in each answer, so whose such an id is cannot be told any more: their ends are not reported.
    """

    def __init__(self, events: ToolEvents) -> None:
        super().__init__()
        self._events = events
        self._open: OrderedDict[str, str | None] = OrderedDict()
        self._lock = threading.Lock()

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> None:  # noqa: ARG002
        """A request goes out: the tools whose results it carries have ended."""
        for call_id in _results(messages):
            with self._lock:
                session = self._open.get(call_id)
                if session is not None:
                    del self._open[call_id]
            if session is not None:
                self._events.session(session).report("end", call_id)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """A response is complete: the tools that it asks for begin."""
        session = _session(kwargs, response_obj)
        if session is None:
            return
        for call_id, tool in _calls(response_obj):
            with self._lock:
                unique = self._open.get(call_id, session) == session
                self._open[call_id] = session if unique else None
                self._open.move_to_end(call_id)
                while len(self._open) > CALLS_MAX:
                    self._open.popitem(last=False)
            self._events.session(session).report("start", call_id, tool=tool)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """The same for `litellm.acompletion`."""
        self.log_success_event(kwargs, response_obj, start_time, end_time)


def _results(messages: object) -> Iterable[str]:
    """The ids of the tool calls whose results end the conversation."""
    for message in reversed(messages if isinstance(messages, list) else []):
        if not isinstance(message, Mapping) or message.get("role") != "tool":
            return
        call_id = message.get("tool_call_id")
        if isinstance(call_id, str):
            yield call_id


def _session(kwargs: object, response: object) -> str | None:
    hidden = getattr(response, "_hidden_params", None) or {}
    given = kwargs if isinstance(kwargs, Mapping) else {}
    places = (
        hidden.get("additional_headers"),
        hidden.get("headers"),
        given.get("response_headers"),
        (given.get("litellm_params") or {}).get("response_headers"),
    )
    for headers in places:
        if isinstance(headers, Mapping):
            value = headers.get(SESSION_HEADER) or headers.get("x-tao-session")
            if isinstance(value, str) and value:
                return value
    return None


def _calls(response: object) -> Iterable[tuple[str, str]]:
    """(call id, tool name) of each call that the response asks for."""
    for choice in getattr(response, "choices", None) or []:
        for call in getattr(getattr(choice, "message", None), "tool_calls", None) or []:
            call_id, name = getattr(call, "id", None), getattr(getattr(call, "function", None), "name", None)
            if isinstance(call_id, str) and isinstance(name, str) and call_id and name:
                yield call_id, name[:128]
