"""The same events give the same commands, byte for byte, under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KIT = Path(__file__).parent.parent / "kit"
POLICIES = ["tao", "tao-paper", "round-robin", "sticky-least-loaded"]


def digests(hash_seed: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(KIT / "digest_of_run.py"), *POLICIES],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.slow
def test_three_hash_seeds_one_digest() -> None:
    first, *others = [digests(seed) for seed in ("0", "1", "4242")]
    assert list(first) == POLICIES
    assert len(set(first.values())) == len(POLICIES)  # they do decide differently
    for other in others:
        assert other == first
