"""A real vLLM on the CPU, serving a tiny random model, as a context manager.

The model, the command line and the environment of the engine; how its process is started and ended is in
`tests.engine.processes`. It knows nothing of TAO: the gateway goes in front.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.processes import ServiceError, free_port, service

ROOT = Path(__file__).resolve().parents[2]
ENGINE_BIN = ROOT / ".venvs" / "vllm" / "bin"
MODEL_NAME = "tiny"
START_SECONDS_MAX = 240.0


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What the engine is started with; its KV cache has `blocks` blocks, of which it reserves one."""

    shape: str = "tiny"
    blocks: int = 1024
    block_size_tokens: int = 32  # the CPU backend takes multiples of 32
    context_tokens_max: int = 8192
    requests_max: int = 16
    kv_events: bool = False
    extra_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VllmReplica:
    """A running replica."""

    url: str
    model: str
    capacity_tokens: int
    log_path: Path
    start_seconds: float
    pid: int
    """Of the process, and of its group."""


def make_model(
    directory: Path, shape: str, context_tokens: int = 32_768, engine_bin: Path = ENGINE_BIN
) -> None:
    """Write the model with the engine's own interpreter, which has the tokenizer trainer."""
    script = ROOT / "scripts" / "make_tiny_model.py"
    command = [str(engine_bin / "python"), str(script), str(directory), "--shape", shape]
    command += ["--context-tokens", str(context_tokens)]
    subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)


def engine_environment(scratch: Path) -> dict[str, str]:
    """Offline, quiet, loopback only, the same block hashes in each run, nothing in the home folder."""
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise two replicas want the same cores
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CACHE_ROOT": str(scratch / "cache"),
        "VLLM_CONFIG_ROOT": str(scratch / "config"),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }


def kv_event_arguments() -> list[str]:
    """KV events and their replay on loopback ports of the engine's choice, which `GET /kv_event_sources` tells.

    A port chosen here would be bound half a minute later, and may be taken by then.
    """
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": "tcp://*:0",
        "replay_endpoint": "tcp://*:0",
    }
    return ["--kv-events-config", json.dumps(config)]


def engine_command(model: Path, port: int, options: ReplicaOptions) -> list[str]:
    """The command line of `vllm serve`."""
    return [
        *(str(ENGINE_BIN / "vllm"), "serve", str(model), "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--dtype", "float32"),
        *("--max-model-len", str(options.context_tokens_max), "--max-num-seqs", str(options.requests_max)),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager"),
        *("--block-size", str(options.block_size_tokens), "--num-gpu-blocks-override", str(options.blocks)),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *(kv_event_arguments() if options.kv_events else ()),
        *options.extra_arguments,
    ]


@contextmanager
def start_replica(scratch: Path, options: ReplicaOptions | None = None) -> Iterator[VllmReplica]:
    """Run one replica while the context lasts; its model, caches and log are in `scratch`.

    Raises ServiceError, with the end of the engine's log, when it is not installed or does not come up in time.
    """
    if not (ENGINE_BIN / "vllm").exists():
        raise ServiceError("vLLM is not installed here: run `make test-engine`, which installs it")
    options = options or ReplicaOptions()
    scratch.mkdir(parents=True, exist_ok=True)
    model, log_path = scratch / "model", scratch / "vllm.log"
    make_model(model, options.shape, max(32_768, options.context_tokens_max))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    with service(
        engine_command(model, port, options),
        url,
        log_path,
        ready_path="/health",
        environment=engine_environment(scratch),
        directory=scratch,
        start_seconds_max=START_SECONDS_MAX,
    ) as running:
        yield VllmReplica(
            url=url,
            model=MODEL_NAME,
            capacity_tokens=options.blocks * options.block_size_tokens,
            log_path=log_path,
            start_seconds=time.monotonic() - started,
            pid=running.pid,
        )
