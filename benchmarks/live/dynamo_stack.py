"""NVIDIA Dynamo before plain vLLM replicas: its frontend with the KV router, and a worker for each replica.

usage: PYTHON -m benchmarks.live.dynamo_stack PORT BLOCK_TOKENS CAPACITY_TOKENS REPLICA_URL ...
PYTHON is one that has `ai-dynamo`. All processes are of this one's group, listen on loopback, find one another by files in
a folder of their own, and end with the first that ends. It knows command lines and nothing of requests.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

LOOPBACK = "127.0.0.1"


def frontend(port: str, block_tokens: str, workers: int) -> list[str]:
    """The command line of the frontend: KV routing that predicts what the caches hold, since replicas publish no events."""
    return [
        *(sys.executable, "-m", "dynamo.frontend", "--http-host", LOOPBACK, "--http-port", port),
        *("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"),
        *("--router-mode", "kv", "--kv-cache-block-size", block_tokens, "--no-router-kv-events"),
        *("--router-min-initial-workers", str(workers)),
    ]


def worker(replica: str, block_tokens: str, capacity_tokens: str, described_by: str) -> list[str]:
    """The command line of one replica's worker. `described_by`: the replica whose files of the model all of them name, since
    the frontend refuses workers whose models lie in different places.
    """
    arguments = (replica, block_tokens, capacity_tokens, described_by)
    return [sys.executable, "-m", "benchmarks.live.dynamo_worker", *arguments]


def environment(folder: str) -> dict[str, str]:
    """Nothing from outside, nothing beyond loopback, nothing in the home folder, quiet."""
    return {
        **os.environ,
        "DYN_FILE_KV": folder,
        "DYN_TCP_RPC_HOST": LOOPBACK,
        "DYN_TCP_RESPONSE_STREAM_HOST": LOOPBACK,
        "DYN_EVENT_PLANE_HOST": LOOPBACK,
        "DYN_SYSTEM_PORT": "-1",
        "DYN_SELF_HOST_METADATA": "0",
        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
        "DYN_LOG": "warn",
        "HOME": folder,
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    }


def main(arguments: Sequence[str]) -> int:
    """Run until one of the processes ends; its exit code."""
    port, block_tokens, capacity_tokens, *replicas = arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the folder is removed
    with tempfile.TemporaryDirectory(prefix="dynamo-") as folder:
        commands = [worker(replica, block_tokens, capacity_tokens, replicas[0]) for replica in replicas]
        commands.append(frontend(port, block_tokens, len(replicas)))
        running = [subprocess.Popen(command, env=environment(folder)) for command in commands]
        with ThreadPoolExecutor(len(running)) as pool:
            try:
                ended = wait([pool.submit(process.wait) for process in running], return_when=FIRST_COMPLETED)
                return ended.done.pop().result()
            finally:
                for process in running:
                    process.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
