"""An agent that uses LiteLLM as a library, with TAO's callback: two turns and a tool between them, for each way of asking.

Prints one JSON document a way: what it saw of the gateway before and after the second request. It runs in the environment of
mini-swe-agent, which has LiteLLM.
"""

import asyncio
import json
import sys
import threading
import time
import urllib.request
from importlib import import_module
from typing import Any

from tao.client import ToolEvents
from tao.client.litellm import tool_callback

SECONDS_MAX = 20.0
POLL_SECONDS = 0.01


def calls_of(url: str) -> list[dict[str, Any]]:
    """The reported calls of the latest session."""
    with urllib.request.urlopen(f"{url}/state") as page:
        session = json.load(page)["sessions"][-1]
    with urllib.request.urlopen(f"{url}/explain/{session['id']}") as page:
        calls: list[dict[str, Any]] = json.load(page)["reported_calls"]
    return calls


def until(condition: Any) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(condition)
        threading.Event().wait(POLL_SECONDS)


def run(litellm: Any, events: ToolEvents, url: str, mode: str) -> dict[str, Any]:
    """One session of two turns."""
    request: dict[str, Any] = {
        "model": "openai/m",
        "api_base": f"{url}/v1",
        "api_key": "key-1",
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"fix the bug, {mode}"}]

    def ask() -> Any:
        if mode == "async":
            return asyncio.run(asked_async())
        if mode == "stream":
            pieces = list(litellm.completion(messages=messages, stream=True, **request))
            return litellm.stream_chunk_builder(pieces)
        return litellm.completion(messages=messages, **request)

    async def asked_async() -> Any:
        answer = await litellm.acompletion(messages=messages, **request)
        await asyncio.to_thread(
            until, lambda: len(messages) > 1 or calls_of(url)
        )  # its callbacks run in a task
        return answer

    calls = ask().choices[0].message.tool_calls
    before = until(lambda: calls_of(url))
    messages.append({"role": "assistant", "tool_calls": [call.model_dump() for call in calls]})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in calls]
    ask()
    events.flush(5)
    after = until(lambda: [call for call in calls_of(url) if call["state"] == "ended"])
    return {"before": before, "after": after, "dropped": events.sender.dropped}


def main(url: str, *modes: str) -> None:
    litellm: Any = import_module("litellm")  # takes its time
    events = ToolEvents(url, api_key="key-1")
    litellm.callbacks = [tool_callback(events)]
    for mode in modes:
        sys.stdout.write(json.dumps(run(litellm, events, url, mode)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
