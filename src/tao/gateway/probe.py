"""Looking at a replica over HTTP: its health, and what its metrics page tells."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tao.gateway.fleet import Sighting


class HttpProbe:
    """Implements `tao.gateway.fleet.Probe`. Use inside a running event loop; `close` when done."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def look(self, base_url: str, timeout_seconds: float) -> Sighting:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with self._http.get(f"{base_url}/health", timeout=timeout) as health:
                if health.status != 200:
                    return Sighting(False, f"/health answers {health.status}")
            async with self._http.get(f"{base_url}/metrics", timeout=timeout) as page:
                text = await page.text()
        except aiohttp.ClientConnectorError as error:
            return Sighting(False, str(error), refused=True)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Sighting(False, f"{type(error).__name__}: {error}")
        capacity = None
        for family in text_string_to_metric_families(text):
            if family.name == "vllm:cache_config_info":
                for sample in family.samples:
                    capacity = (capacity or 0) + int(sample.labels["block_size"]) * int(
                        sample.labels["num_gpu_blocks"]
                    )
        return Sighting(True, engine="vllm", capacity_tokens=capacity)

    async def close(self) -> None:
        await self._http.close()
