"""Health pages that answer late: the question is kept, and what the engine has said last counts meanwhile.

SGLang answers `/health` by generating a token, so behind a long prefill it takes seconds, and 20 before it says 503. An
engine that answers other pages is then busy and not dead. It must not know what anybody concludes from it.
"""

import asyncio
from collections.abc import Awaitable, Callable

ANSWER_SECONDS_MAX = 30.0
"""More than SGLang itself waits for its token."""


class HealthPages:
    """One question at a time to each replica. `ask`: gets the status of a page of a replica, within so many seconds."""

    def __init__(self, ask: Callable[[str, float], Awaitable[int]]) -> None:
        self._ask = ask
        self._asked: dict[str, asyncio.Task[int]] = {}
        self._good: set[str] = set()

    async def status(self, base_url: str, seconds_max: float) -> int | None:
        """What the replica answers to this question or to an earlier one; None where that is late, and the last answer was
        200.

        Raises what `ask` raises, and TimeoutError where the answer is late and the last one was anything else, or none, or
        where the replica is forgotten meanwhile.
        """
        asked = self._asked.get(base_url)
        if asked is None or asked.done():  # what came since the last look is known by `_good`
            asked = self._asked[base_url] = asyncio.get_running_loop().create_task(self._answer(base_url))
            asked.add_done_callback(_retrieve)
        done, _ = await asyncio.wait({asked}, timeout=seconds_max)
        if asked.cancelled():
            raise TimeoutError("the replica was forgotten before /health answered")
        if done:
            return asked.result()
        if base_url in self._good:
            return None
        raise TimeoutError(f"/health does not answer within {seconds_max:g} s")

    def forget(self, base_url: str) -> None:
        """Nobody asks for this replica any more."""
        asked = self._asked.pop(base_url, None)
        if asked is not None:
            asked.cancel()
        self._good.discard(base_url)

    async def close(self) -> None:
        """Ask no more."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._asked.clear()

    async def _answer(self, base_url: str) -> int:
        status = 0
        try:
            status = await self._ask(base_url, ANSWER_SECONDS_MAX)
        finally:
            (self._good.add if status == 200 else self._good.discard)(base_url)
        return status


def _retrieve(asked: asyncio.Task[int]) -> None:
    """Whoever looks again has it from `_good`; nobody else has to know of the error."""
    if not asked.cancelled():
        asked.exception()
