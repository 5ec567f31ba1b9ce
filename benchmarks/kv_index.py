"""The index of KV blocks at its bound: memory of a million blocks, time to decode and to index.

`python benchmarks/kv_index.py [--blocks N]` prints one line a figure. Sessions have 4,096 blocks each, told in batches of
256 blocks of 16 tokens, as a prefill in chunks of 4,096 tokens tells them. Time is processor time of the thread.
"""

import argparse
import random
import time
from pathlib import Path

import msgspec

from tao.engines.kv_follow import KvFollower
from tao.engines.kv_wire import KvDecoder

BATCH_BLOCKS = 256
SESSION_BATCHES = 16
BLOCK_TOKENS = 16


def batch(sequence: int, chance: random.Random, parent: int | None, session: str) -> tuple[list[bytes], int]:
    """The frames of one batch, and its last hash."""
    hashes = [chance.getrandbits(64) for _ in range(BATCH_BLOCKS)]
    event = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": list(range(BATCH_BLOCKS * BLOCK_TOKENS)),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        "session_id": session,
    }
    payload = msgspec.msgpack.encode([float(sequence), [event], 0])
    return [b"", sequence.to_bytes(8, "big"), payload], hashes[-1]


def resident_mib() -> float:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1 << 20)
    blocks = parser.parse_args().blocks
    chance = random.Random(0)
    clock = time.thread_time
    frames, _ = batch(0, chance, None, "warm-up")
    decoder = KvDecoder()
    began = clock()
    for _ in range(500):
        decoder.read(frames)
    print(f"decode a batch of {BATCH_BLOCKS} blocks: {(clock() - began) / 500 * 1e3:.2f} ms")
    follower = KvFollower("", blocks_max=blocks)
    before, spent, parent = resident_mib(), 0.0, None
    count = blocks // BATCH_BLOCKS
    for number in range(count):
        if number % SESSION_BATCHES == 0:
            parent = None
        frames, parent = batch(number, chance, parent, f"s{number // SESSION_BATCHES}")
        began = clock()
        follower.receive(frames, 0.0)
        spent += clock() - began
        follower.take_heard()
    index = follower.index
    print(f"{index.blocks} blocks, {index.sessions} sessions: {resident_mib() - before:.0f} MiB")
    print(f"decode and index a batch: {spent / count * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
