"""What stands between the client and the replicas, by name: how each is started, and which paper or project it is of.

Peers are started with the settings that their own pages recommend for conversations; every one listens on loopback
only. Those of `BY_HAND` are not installed by this project: an environment variable names their program. It knows command
lines and nothing of load or figures.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live.replicas import BLOCK_TOKENS
from tests.engine.processes import free_port
from tests.engine.vllm_replica import MODEL_NAME

ROOT = Path(__file__).resolve().parents[2]
PEERS_BIN = ROOT / ".venvs" / "peers" / "bin"
LOOPBACK = "127.0.0.1"
THUNDERAGENT = "TAO_LIVE_THUNDERAGENT"
DYNAMO = "TAO_LIVE_DYNAMO"
BY_HAND = {
    THUNDERAGENT: "the `thunderagent` program of an environment with ThunderAgent in it",
    DYNAMO: "the Python of an environment with `ai-dynamo` in it",
}
"""What each environment variable names."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One way to start a peer: its command, the address it will answer on, the page that says it is ready."""

    command: tuple[str, ...]
    url: str
    ready_path: str = "/v1/models"
    state_path: str | None = None
    """A page that tells what the peer did, kept with the run's figures."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way through to the replicas. `needs_peers_venv`: installed by `make peers`; `by_hand`: see `BY_HAND`.

    `client_options`: what `tao replay` sends beside the load, such as a session's end, which few real clients tell.
    `is_ours`: its state is the metrics page of `tao serve`.
    """

    name: str
    launch: Callable[[Sequence[str], int], Launch]
    """From the replicas' addresses and the KV tokens of each."""
    needs_peers_venv: bool = False
    client_options: tuple[str, ...] = ()
    by_hand: str | None = None
    is_ours: bool = False


def _address() -> tuple[str, str]:
    port = str(free_port())
    return port, f"http://{LOOPBACK}:{port}"


def _alternating(replicas: Sequence[str], _capacity_tokens: int) -> Launch:
    port, url = _address()
    return Launch((sys.executable, "-m", "benchmarks.live.alternate", port, *replicas), url)


def _tao(policy: str) -> Callable[[Sequence[str], int], Launch]:
    def launch(replicas: Sequence[str], _capacity_tokens: int) -> Launch:
        port, url = _address()
        named = [argument for replica in replicas for argument in ("--replica", replica)]
        command = (sys.executable, "-m", "tao", "serve", "--port", port, "--policy", policy)
        return Launch((*command, "--log-level", "warning", *named), url, "/readyz", "/metrics")

    return launch


def _vllm_router(policy: str, *more: str) -> Callable[[Sequence[str], int], Launch]:
    def launch(replicas: Sequence[str], _capacity_tokens: int) -> Launch:
        port, url = _address()
        command = (
            *(str(PEERS_BIN / "vllm-router"), "--host", LOOPBACK, "--port", port),
            *("--prometheus-host", LOOPBACK, "--prometheus-port", str(free_port())),
            *("--worker-startup-check-interval", "1", "--log-level", "warning"),
            *("--policy", policy, *more, "--worker-urls", *replicas),
        )
        return Launch(command, url, "/health")

    return launch


def _vllm_programs(replicas: Sequence[str], capacity_tokens: int) -> Launch:
    settings = {
        "token_capacity_per_dp_rank": capacity_tokens,
        "global_queue": True,
        "program_scheduling_enable_key": "auto",
    }
    scheduling = ("--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(settings))
    plain = _vllm_router("cache_aware", *scheduling)(replicas, capacity_tokens)
    return Launch(plain.command, plain.url, plain.ready_path, "/scheduling/diagnostics")


def _sglang_router(policy: str) -> Callable[[Sequence[str], int], Launch]:
    def launch(replicas: Sequence[str], _capacity_tokens: int) -> Launch:
        port, url = _address()
        command = (
            *(str(PEERS_BIN / "python"), "-m", "sglang_router.launch_router"),
            *("--host", LOOPBACK, "--port", port, "--log-level", "warn"),
            *("--prometheus-host", LOOPBACK, "--prometheus-port", str(free_port())),
            *("--policy", policy, "--worker-urls", *replicas),
        )
        return Launch(command, url, "/readiness")

    return launch


def _by_hand(variable: str) -> str:
    program = Path(os.environ.get(variable) or "nowhere")
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise ValueError(f"{variable} must name {BY_HAND[variable]}: see docs/results/live.md")
    return str(program)


def _thunderagent(replicas: Sequence[str], _capacity_tokens: int) -> Launch:
    """It reads the replicas' KV tokens itself. With decay: without it programs that are never released stop the others."""
    port, url = _address()
    command = (
        *(_by_hand(THUNDERAGENT), "--host", LOOPBACK, "--port", port, "--log-level", "warning"),
        *(
            "--backend-type",
            "vllm",
            "--backends",
            ",".join(replicas),
            "--metrics",
            "--use-acting-token-decay",
        ),
    )
    return Launch(command, url, "/health", "/programs")


def _dynamo(replicas: Sequence[str], capacity_tokens: int) -> Launch:
    port, url = _address()
    stack = (
        _by_hand(DYNAMO),
        "-m",
        "benchmarks.live.dynamo_stack",
        port,
        str(BLOCK_TOKENS),
        str(capacity_tokens),
    )
    return Launch((*stack, *replicas), url, f"/v1/models/{MODEL_NAME}", "/metrics")


PROGRAM_ID = ("--session-field", "program_id")

PEERS = {
    peer.name: peer
    for peer in (
        Peer("round-robin", _alternating),
        Peer("vllm-router-round-robin", _vllm_router("round_robin"), True),
        Peer("vllm-router-cache-aware", _vllm_router("cache_aware"), True),
        Peer("vllm-router-consistent-hash", _vllm_router("consistent_hash"), True),
        Peer("vllm-router-sticky", _vllm_router("sticky_least_loaded"), True),
        Peer("vllm-router-programs", _vllm_programs, True),
        Peer("sglang-router-round-robin", _sglang_router("round_robin"), True),
        Peer("sglang-router-cache-aware", _sglang_router("cache_aware"), True),
        Peer("tao-round-robin", _tao("round-robin"), is_ours=True),
        Peer("tao", _tao("tao"), is_ours=True),
        Peer(
            "tao-ends-told", _tao("tao"), client_options=("--final-header", "x-session-final"), is_ours=True
        ),
        Peer("thunderagent", _thunderagent, client_options=PROGRAM_ID, by_hand=THUNDERAGENT),
        Peer(
            "thunderagent-ends-told",
            _thunderagent,
            client_options=(*PROGRAM_ID, "--release-path", "/programs/release"),
            by_hand=THUNDERAGENT,
        ),
        Peer("dynamo", _dynamo, by_hand=DYNAMO),
    )
}


def chosen(names: Sequence[str]) -> list[Peer]:
    """The peers of these names, in that order. ValueError names one that does not exist or is not installed."""
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise ValueError(f"no such peer: {', '.join(unknown)} (there are {', '.join(PEERS)})")
    peers = [PEERS[name] for name in dict.fromkeys(names)]
    if any(peer.needs_peers_venv for peer in peers) and not (PEERS_BIN / "vllm-router").exists():
        raise ValueError("the other routers are not installed here: run `make peers`, or choose by --peers")
    for variable in {peer.by_hand for peer in peers if peer.by_hand is not None}:
        _by_hand(variable)
    return peers
