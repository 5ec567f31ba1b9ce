"""How many requests an engine runs at once (vLLM's `max_num_seqs`, SGLang's `max_running_requests`), where it tells.

No metrics page has it. vLLM tells it at `/server_info`, in its developers' mode only (`VLLM_SERVER_DEV_MODE=1`); SGLang at
`/server_info`, before 0.5.3 at `/get_server_info`. Both tell the number of one data-parallel rank. It must not know HTTP
or decisions.
"""

from collections.abc import Mapping
from typing import Any

VLLM_PATHS = ("/server_info?config_format=json",)
SGLANG_PATHS = ("/server_info", "/get_server_info")
SLOTS_MAX = 1 << 20


def slots_paths(engine: str) -> tuple[str, ...]:
    """Where to ask an engine (`EngineStatus.engine`), the first that answers 200 tells; none where nothing is known."""
    return {"vllm": VLLM_PATHS, "sglang": SGLANG_PATHS}.get(engine, ())


def read_slots(engine: str, document: Any, ranks: int) -> int | None:
    """Requests at once over all ranks; None where the document, of any shape, does not tell.

    `ranks`: how many an engine of vLLM has, by its metrics page; SGLang tells them one by one.
    """
    if engine == "vllm":
        each = _count(_at(document, "vllm_config", "scheduler_config", "max_num_seqs"))
        return None if each is None else each * max(1, ranks)
    if engine != "sglang":
        return None
    states = _at(document, "internal_states")
    told = [
        _count(_at(state, "effective_max_running_requests_per_dp"))
        for state in (states if isinstance(states, list) else ())
    ]
    known = [count for count in told if count is not None]
    if known and len(known) == len(told):
        return sum(known)
    return _count(_at(document, "max_running_requests"))  # as it was started, where it was said


def _at(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _count(value: Any) -> int | None:
    """A whole number of requests; None for anything else, booleans included."""
    return value if type(value) is int and 0 < value <= SLOTS_MAX else None
