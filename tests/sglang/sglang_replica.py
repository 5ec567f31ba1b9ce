"""A real SGLang on the CPU, serving a tiny random model, as a context manager.

The command line and the environment of the engine; how its process is started and ended is in `tests.engine.processes`. It
knows nothing of TAO: the gateway goes in front.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.processes import ServiceError, free_port, service
from tests.engine.vllm_replica import ROOT, make_model

ENGINE_BIN = ROOT / ".venvs" / "sglang" / "bin"
MODEL_NAME = "tiny"
VERSION = "0.5.23"
CAPACITY_TOKENS = 16_384
CONTEXT_TOKENS_MAX = 8_192
REQUESTS_MAX = 16
START_SECONDS_MAX = 240.0


@dataclass(frozen=True, slots=True)
class SglangReplica:
    """A running replica."""

    url: str
    log_path: Path
    start_seconds: float
    pid: int
    """Of the process, and of its group."""


def engine_environment(scratch: Path) -> dict[str, str]:
    """Offline, one thread, nothing in the home folder, and no sign of a GPU looked for."""
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "HOME": str(scratch),
        "XDG_CACHE_HOME": str(scratch / "cache"),
    }


def engine_command(model: Path, port: int) -> list[str]:
    """The command line of the server. KV events are published on loopback, which `bind` makes it listen on."""
    events = {
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": f"tcp://127.0.0.1:{free_port()}",
        "bind": True,
        "replay_endpoint": f"tcp://127.0.0.1:{free_port()}",
    }
    return [
        *(str(ENGINE_BIN / "python"), "-m", "sglang.launch_server"),
        *("--model-path", str(model), "--served-model-name", MODEL_NAME, "--load-format", "dummy"),
        *("--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "bfloat16"),
        *("--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph"),
        *("--max-total-tokens", str(CAPACITY_TOKENS), "--context-length", str(CONTEXT_TOKENS_MAX)),
        *("--max-running-requests", str(REQUESTS_MAX), "--mem-fraction-static", "0.3", "--sleep-on-idle"),
        *("--enable-metrics", "--enable-cache-report", "--kv-events-config", json.dumps(events)),
    ]


@contextmanager
def start_replica(scratch: Path) -> Iterator[SglangReplica]:
    """Run one replica while the context lasts; its model, caches and log are in `scratch`.

    Raises ServiceError, with the end of the engine's log, when it is not installed or does not come up in time.
    """
    if not (ENGINE_BIN / "python").exists():
        raise ServiceError("SGLang is not installed here: run `make test-sglang`, which installs it")
    scratch.mkdir(parents=True, exist_ok=True)
    model, log_path = scratch / "model", scratch / "sglang.log"
    make_model(model, "tiny", engine_bin=ENGINE_BIN)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    with service(
        engine_command(model, port),
        url,
        log_path,
        ready_path="/health",
        environment=engine_environment(scratch),
        directory=scratch,
        start_seconds_max=START_SECONDS_MAX,
    ) as running:
        yield SglangReplica(url, log_path, time.monotonic() - started, running.pid)
