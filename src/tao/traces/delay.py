"""One fixed extra delay of all tools of a session: tools made slower, as in appendix G of the paper.

Pure. It must not know how sessions are played.
"""

import random


def fixed_delay_seconds(session_id: str, least_most: tuple[float, float], seed: int) -> float:
    """The session's delay, evenly drawn between least and most; the same for one seed wherever the session is played."""
    chance = random.Random(f"{seed} tool delay {session_id}")  # noqa: S311 - repeatable, not a secret
    return chance.uniform(*least_most)
