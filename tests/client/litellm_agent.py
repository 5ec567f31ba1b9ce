"""An agent that uses LiteLLM as a library, with TAO's callback: two turns and a tool between them. Run by its tests.

Reads nothing, prints one JSON document: what it saw of the gateway before and after the second request. It runs in the
environment of mini-swe-agent, which has LiteLLM.
"""

import asyncio
import json
import sys
import time
import urllib.request
from importlib import import_module
from typing import Any

from tao.client import ToolEvents
from tao.client.litellm import tool_callback

SECONDS_MAX = 20.0


def state(url: str) -> list[dict[str, Any]]:
    """The reported calls of the only session."""
    with urllib.request.urlopen(f"{url}/state") as page:
        (session,) = json.load(page)["sessions"]
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
        time.sleep(0.01)


def main(url: str, mode: str) -> None:
    import litellm

    litellm: Any = import_module("litellm")  # takes its time
    events = ToolEvents(url, api_key="key-1")
    litellm.callbacks = [tool_callback(events)]
    request: dict[str, Any] = {
        "model": "openai/m",
        "api_base": f"{url}/v1",
        "api_key": "key-1",
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    }
    messages: list[dict[str, Any]] = [{"role": "user", "content": "fix the bug"}]

    def ask() -> Any:
        if mode == "async":
            return asyncio.run(asked_async())
        if mode == "stream":
            return litellm.stream_chunk_builder(
                list(litellm.completion(messages=messages, stream=True, **request))
            )
        return litellm.completion(messages=messages, **request)

    async def asked_async() -> Any:
        answer = await litellm.acompletion(messages=messages, **request)
        await asyncio.sleep(0.3)  # LiteLLM's own callbacks run in a task
        return answer

    message = ask().choices[0].message
    before = until(lambda: state(url))
    messages.append({"role": "assistant", "tool_calls": [call.model_dump() for call in message.tool_calls]})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in message.tool_calls]
    ask()
    events.flush(5)
    after = until(lambda: [call for call in state(url) if call["state"] == "ended"])
    sys.stdout.write(json.dumps({"before": before, "after": after, "dropped": events.sender.dropped}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
