"""Where an engine publishes its KV events: what the pages say that tell of it, and endpoints to connect to.

At `/kv_event_sources` vLLM answers an object by data-parallel rank, other servers a list. SGLang tells it in `/server_info`,
under `kv_events`: the host and port of the first rank, the others at the ports after it. An endpoint may be the one that
the engine binds (`tcp://*:5557`), which a subscriber reaches at the replica's own host. It must not know sockets.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PATHS = ("/kv_event_sources", "/server_info")
"""Where to ask, in this order; the first that names a source tells."""
RANKS_MAX = 1024

_ENDPOINT = re.compile(r"(?:tcp://[^\s/]{1,255}:[0-9]{1,5}|ipc://\S{1,255})")
_RANK = re.compile(r"[0-9]{1,9}")
_ANY_HOST = re.compile(r"^tcp://(?:\*|0\.0\.0\.0|\[::\]|::):")


@dataclass(frozen=True, slots=True)
class KvSource:
    """One publisher: a data-parallel rank of a replica. `topic`: None where it was not told."""

    endpoint: str
    replay_endpoint: str | None = None
    topic: str | None = None
    rank: int = 0


def read_sources(document: Any, host: str) -> tuple[KvSource, ...]:
    """The sources that an engine at `host` names, in the order of ranks; what cannot be used is left out."""
    found = list(_entries(_by_rank(document)))[:RANKS_MAX]
    sources = [_source(rank, entry, host) for rank, entry in found if isinstance(entry, dict)]
    return tuple(sorted((source for source in sources if source is not None), key=lambda source: source.rank))


def reachable(endpoint: str, host: str) -> str:
    """The endpoint as a subscriber connects to it. Raises `ValueError` where it is none."""
    shown = f"[{host}]" if ":" in host else host
    endpoint = _ANY_HOST.sub(lambda _: f"tcp://{shown}:", endpoint)
    port = endpoint.rpartition(":")[2]
    if not _ENDPOINT.fullmatch(endpoint) or (port.isdecimal() and not 0 < int(port) <= 65_535):
        raise ValueError(f"{endpoint[:80]!r} is no endpoint; write it like tcp://10.0.0.5:5557")
    return endpoint


def _by_rank(document: Any) -> Any:
    """A document of SGLang as the list of ranks that it stands for; any other as it is."""
    if not isinstance(document, dict) or "kv_events" not in document:
        return document
    told = document["kv_events"]
    if not isinstance(told, dict) or told.get("publisher") != "zmq":
        return []
    host, topic = str(told.get("endpoint_host")), told.get("topic")
    port, replay, ranks = (
        told.get(key) for key in ("endpoint_port_base", "replay_endpoint_port_base", "dp_size")
    )
    if not isinstance(port, int):
        return []
    return [
        {
            "endpoint": f"tcp://{host}:{port + rank}",
            "replay_endpoint": f"tcp://{host}:{replay + rank}" if isinstance(replay, int) else None,
            "topic": topic,
        }
        for rank in range(min(ranks, RANKS_MAX) if isinstance(ranks, int) else 1)
    ]


def _entries(document: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(document, dict):
        yield from ((int(rank) if _RANK.fullmatch(rank) else 0, entry) for rank, entry in document.items())
    elif isinstance(document, list):
        for number, entry in enumerate(document):
            rank = entry.get("data_parallel_rank") if isinstance(entry, dict) else None
            yield rank if isinstance(rank, int) else number, entry


def _source(rank: int, entry: dict[str, Any], host: str) -> KvSource | None:
    endpoint, replay, topic = (entry.get(key) for key in ("endpoint", "replay_endpoint", "topic"))
    if entry.get("enable_kv_cache_events") is False or not isinstance(endpoint, str):
        return None
    try:
        return KvSource(
            reachable(endpoint, host),
            reachable(replay, host) if isinstance(replay, str) and replay else None,
            topic if isinstance(topic, str) else None,
            rank,
        )
    except ValueError:
        return None
