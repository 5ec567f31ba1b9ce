"""A real vLLM on the CPU, serving a tiny random model, as a context manager.

Starts the process on a free loopback port, waits for its health page until a deadline, and ends its whole
process group on the way out, whatever happened inside. It knows nothing of TAO: the gateway goes in front.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
ENGINE_BIN = ROOT / ".venvs" / "vllm" / "bin"
MODEL_NAME = "tiny"
START_SECONDS_MAX = 240.0
POLL_SECONDS = 0.25
TERMINATE_SECONDS_MAX = 15.0
LOG_TAIL_CHARACTERS = 4_000


class ReplicaStartError(Exception):
    """The engine is not installed, ended while starting, or was not healthy before the deadline."""


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


def free_port() -> int:
    """A loopback TCP port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def make_model(directory: Path, shape: str, context_tokens: int = 32_768) -> None:
    """Write the model with the engine's own interpreter, which has the tokenizer trainer."""
    script = ROOT / "scripts" / "make_tiny_model.py"
    command = [str(ENGINE_BIN / "python"), str(script), str(directory), "--shape", shape]
    command += ["--context-tokens", str(context_tokens)]
    subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)


def engine_environment(scratch: Path) -> dict[str, str]:
    """Offline, quiet, loopback only, the same block hashes in each run, nothing in the home folder."""
    return {
        **os.environ,
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
    """KV events on a loopback port of the engine's choice, which `GET /kv_event_sources` tells, with replay."""
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": "tcp://*:0",
        "replay_endpoint": f"tcp://127.0.0.1:{free_port()}",
    }
    return ["--kv-events-config", json.dumps(config)]


def engine_command(model: Path, port: int, options: ReplicaOptions) -> list[str]:
    """The command line of `vllm serve`."""
    return [
        *(str(ENGINE_BIN / "vllm"), "serve", str(model), "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--dtype", "bfloat16"),
        *("--max-model-len", str(options.context_tokens_max), "--max-num-seqs", str(options.requests_max)),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager"),
        *("--block-size", str(options.block_size_tokens), "--num-gpu-blocks-override", str(options.blocks)),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *(kv_event_arguments() if options.kv_events else ()),
        *options.extra_arguments,
    ]


def tail(log_path: Path) -> str:
    """The end of the engine's log, for error messages."""
    return log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def wait_healthy(process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    """Return once `/health` answers 200; ReplicaStartError when the process ends or the deadline passes."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=2.0).status_code == httpx.codes.OK:
                return
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=POLL_SECONDS)
            raise ReplicaStartError(f"vLLM ended with code {code} while starting:\n{tail(log_path)}")
    raise ReplicaStartError(f"vLLM was not healthy after {START_SECONDS_MAX:.0f} s:\n{tail(log_path)}")


def end(process: subprocess.Popen[bytes], terminate_seconds_max: float = TERMINATE_SECONDS_MAX) -> None:
    """End the process group: TERM and a bounded wait, then KILL: vLLM may swallow a TERM while starting."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=terminate_seconds_max)
    assert process.returncode is not None, f"vLLM (process {process.pid}) survived SIGKILL"


@contextmanager
def start_replica(scratch: Path, options: ReplicaOptions | None = None) -> Iterator[VllmReplica]:
    """Run one replica while the context lasts; its model, caches and log are in `scratch`.

    Raises ReplicaStartError, with the end of the engine's log, when it does not come up in time.
    """
    if not (ENGINE_BIN / "vllm").exists():
        raise ReplicaStartError("vLLM is not installed here: run `make test-engine`, which installs it")
    options = options or ReplicaOptions()
    scratch.mkdir(parents=True, exist_ok=True)
    model, log_path = scratch / "model", scratch / "vllm.log"
    make_model(model, options.shape, max(32_768, options.context_tokens_max))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            engine_command(model, port, options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=engine_environment(scratch),
            cwd=scratch,
            start_new_session=True,
        )
    try:
        wait_healthy(process, url, log_path)
        yield VllmReplica(
            url=url,
            model=MODEL_NAME,
            capacity_tokens=options.blocks * options.block_size_tokens,
            log_path=log_path,
            start_seconds=time.monotonic() - started,
            pid=process.pid,
        )
    finally:
        end(process)
