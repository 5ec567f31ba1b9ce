"""Prints the digest of a run's commands for each policy named on the command line: one process, one hash seed."""

import sys

from virtual_driver import VirtualDriver, scripted_sessions

from tao.policies import make_policy
from tao.record.log import command_digest


def digest_of_run(policy: str) -> str:
    """Thirty sessions under pressure, and a replica that dies and comes back."""
    driver = VirtualDriver(make_policy(policy), {"a": 16_000, "b": 12_000, "c": 9_000})
    driver.lose(8.0, "b", back_after=3.0, capacity_tokens=12_000)
    return command_digest(driver.run(scripted_sessions(30, seed=11, every_seconds=0.2)).commands)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(f"{name} {digest_of_run(name)}\n")
