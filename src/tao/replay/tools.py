"""What a replay tells of its tools, as an agent with hooks would: that one starts, and when it will be back if asked to.

TAO's tools API. A report that fails is counted and otherwise ignored: no tool waits for it. It must not know prompts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import aiohttp
import msgspec

from tao.replay.clock import ModelClock
from tao.replay.config import ReplayConfig, ToldOfTools
from tao.replay.turn import header_value
from tao.traces.model import TraceSession, TraceTool

REPORT_WALL_SECONDS_MAX = 5.0
CALLS_TOLD_MAX = 32


@dataclass(slots=True)
class ToolTeller:
    """Reports to one endpoint. `failures`: reports that came to nothing."""

    http: aiohttp.ClientSession
    config: ReplayConfig
    clock: ModelClock
    failures: int = 0

    async def started(self, session: TraceSession, index: int, seconds: float) -> None:
        """The tools after turn `index` have started; the last of them takes `seconds` (model time)."""
        tool = session.turns[index].tool
        if self.config.told_of_tools is ToldOfTools.NOTHING or tool is None or tool.is_human:
            return
        for call in self._events(session, index, tool, seconds):
            await self._post(call)

    def _events(
        self, session: TraceSession, index: int, tool: TraceTool, seconds: float
    ) -> Iterator[dict[str, object]]:
        calls = session.turns[index].tools or (tool,)
        for number, call in enumerate(calls[:CALLS_TOLD_MAX]):
            event: dict[str, object] = {
                "session": header_value(self.config.run_id + session.session_id),
                "event": "start",
                "call_id": f"{index}-{number}",
                "tool": call.name[:128],
            }
            if call.command_head:
                event["command"] = call.command_head
            if self.config.told_of_tools is ToldOfTools.RETURNS:
                event["expected_seconds"] = self.clock.wall_seconds(seconds)
            yield event

    async def _post(self, event: dict[str, object]) -> None:
        url = f"{self.config.base_url}/v1/tao/tools"
        timeout = aiohttp.ClientTimeout(total=REPORT_WALL_SECONDS_MAX)
        try:
            async with self.http.post(url, data=msgspec.json.encode(event), timeout=timeout) as response:
                self.failures += response.status != 200
        except (aiohttp.ClientError, TimeoutError):
            self.failures += 1
