"""Sessions that talk through `tao serve` in front of real engines, and what it knows of them."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from gateway_kit import plain_http, until, words
from tao_process import TaoProcess, serve_arguments, tao

TOKEN = {"authorization": "Bearer secret-token"}
ANSWER_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Talk:
    """One session that grows with each turn. `more`: of the body of each; `usages`: what the engine said of each;
    `replicas`: who answered.
    """

    http: httpx.AsyncClient
    name: str
    more: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    replicas: list[str] = field(default_factory=list)

    async def say(self, tokens: int) -> "Talk":
        self.messages.append({"role": "user", "content": f"{self.name}: {words(tokens)}"})
        return await self.ask()

    async def ask(self) -> "Talk":
        """Its messages as they are."""
        body = {"model": "tiny", "messages": self.messages, "max_tokens": 8, "ignore_eos": True, **self.more}
        headers = {"x-session-id": self.name}
        answer = await self.http.post(
            "/v1/chat/completions", json=body, headers=headers, timeout=ANSWER_SECONDS_MAX
        )
        assert answer.status_code == 200, answer.text
        document = answer.json()
        self.messages.append({"role": "assistant", "content": document["choices"][0]["message"]["content"]})
        self.usages.append(document["usage"])
        decision = dict(part.split("=") for part in answer.headers["x-tao-decision"].split("; "))
        self.replicas.append(decision["replica"])
        return self

    @property
    def cached_tokens(self) -> int:
        """Of the last turn."""
        return int((self.usages[-1].get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    @property
    def tokens(self) -> int:
        """Prompt and output of the last turn."""
        return int(self.usages[-1]["prompt_tokens"] + self.usages[-1]["completion_tokens"])

    async def evidence(self) -> dict[str, tuple[int, str]]:
        """Tokens and source by replica, as `/state` shows them."""
        sessions = (await self.http.get("/state")).json()["sessions"]
        (known,) = [session for session in sessions if session["id"] == f"public/{self.name}"]
        return {replica: (seen["tokens"], seen["source"]) for replica, seen in known["evidence"].items()}

    async def is_watched(self) -> bool:
        return any(source == "kv-events" for _, source in (await self.evidence()).values())

    async def is_gone(self) -> bool:
        return not await self.evidence()

    async def is_nowhere_but_on(self, replica: str) -> bool:
        return set(await self.evidence()) <= {replica}


@asynccontextmanager
async def watching(
    tmp_path: Path, *urls: str, policy: str = "round-robin"
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a `tao serve` that follows all these replicas."""
    token = tmp_path / "token"
    token.write_text("secret-token")
    arguments = [*serve_arguments(*urls), "--policy", policy, "--admin-token-file", str(token)]
    async with tao(*arguments) as gateway:
        await gateway.ready()
        async with plain_http(gateway.url) as http:
            numbers = iter(range(1000))

            async def followed() -> bool:
                talk = Talk(http, f"warm-up-{next(numbers)}")
                await talk.say(80)
                streams = (await http.get("/state")).json()["kv_events"]
                return len(streams) == len(urls) and all(stream["live"] for stream in streams)

            await until(followed, 60.0)
            yield http
        await assert_sound(gateway)


async def assert_sound(gateway: TaoProcess) -> None:
    gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == 0, gateway.story()
    assert b"Traceback" not in gateway.err, gateway.story()
