"""What is asked of an endpoint before the load starts: a connection pool, the model's name, how it counts
tokens.

It must not know turns or sessions.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from tao.replay.config import EndpointError, ReplayConfig
from tao.replay.reasons import reason_of
from tao.replay.wire import ModelList, Tokenized

CONNECT_WALL_SECONDS_MAX = 10.0
STARTUP_WALL_SECONDS_MAX = 10.0
BODY_BYTES_MAX = 10_000_000


@asynccontextmanager
async def open_http(config: ReplayConfig) -> AsyncIterator[aiohttp.ClientSession]:
    """A connection pool without a limit of its own: the number of workers is the limit."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WALL_SECONDS_MAX),
        headers=headers,
        read_bufsize=1 << 20,
    ) as http:
        yield http


async def first_model(http: aiohttp.ClientSession, base_url: str) -> str:
    """The first model that `/v1/models` lists; waits some seconds for an endpoint that starts."""
    url = f"{base_url}/v1/models"
    give_up_at = time.monotonic() + STARTUP_WALL_SECONDS_MAX
    while True:
        advice = "Is an OpenAI-compatible server running there? Or name the model yourself: --model NAME"
        try:
            async with http.get(
                url, timeout=aiohttp.ClientTimeout(total=STARTUP_WALL_SECONDS_MAX)
            ) as response:
                body = await response.content.read(BODY_BYTES_MAX)
                if response.status == 200:
                    listed = msgspec.json.decode(body, type=ModelList)
                    if listed.data:
                        return listed.data[0].id
                    reason = "it lists no model"
                else:
                    reason = f"status {response.status}: {body[:200].decode(errors='replace')}"
                    if response.status in (401, 403, 404):
                        break
        except aiohttp.InvalidURL as error:
            raise EndpointError(f"{url}: {reason_of(error)}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = f"{reason_of(error)} (tried for {STARTUP_WALL_SECONDS_MAX:g} s)"
            advice = "Is the server running, and is this its address?"
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = reason_of(error)
        except (msgspec.DecodeError, RecursionError) as error:
            reason = f"not a list of models: {error}"
            break
        if time.monotonic() > give_up_at:
            break
        await asyncio.sleep(0.25)
    raise EndpointError(f"{url}: {reason}. {advice}")


async def tokenized_length(http: aiohttp.ClientSession, base_url: str, model: str, text: str) -> int | None:
    """Tokens of a text by the endpoint's `/tokenize`; None where there is none."""
    body = msgspec.json.encode({"model": model, "prompt": text, "add_special_tokens": False})
    try:
        timeout = aiohttp.ClientTimeout(total=STARTUP_WALL_SECONDS_MAX)
        async with http.post(f"{base_url}/tokenize", data=body, timeout=timeout) as response:
            if response.status != 200:
                return None
            return msgspec.json.decode(await response.content.read(BODY_BYTES_MAX), type=Tokenized).count
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, RecursionError):
        return None
