"""How many sessions a replica takes at once: what is said where it is named, else what the configuration says of it, else of
all, else what its engine tells.

Without any of them nothing but its capacity bounds it. It must not know how an engine is asked.
"""

from collections.abc import Mapping

from tao.core.ids import ReplicaId
from tao.gateway.sources import check_address, replica_name

ENGINE = "engine"
"""As `replica_slots`: as many as the engine tells."""


class SlotsOf:
    """`each`: for replicas that `by_url` does not name; None: no bound; `ENGINE`: as their engines tell."""

    def __init__(self, each: int | str | None, by_url: Mapping[str, int]) -> None:
        self._each = each
        self._by_replica = {ReplicaId(replica_name(url)): slots for url, slots in by_url.items()}

    def __call__(self, replica: ReplicaId, own: int | None, told: int | None) -> int | None:
        """The slots of a replica that is named with `own`, and whose engine tells `told`; None: nothing bounds them."""
        if own is not None:
            return own
        if replica in self._by_replica:
            return self._by_replica[replica]
        return self._each if isinstance(self._each, int) else told if self._each == ENGINE else None


def slots_problem(
    each: int | str | None, by_url: Mapping[str, int], replicas: tuple[str, ...], *, others: bool
) -> str | None:
    """What is wrong with the configured slots, or nothing. `others`: replicas may come that are not named yet.

    Raises `AddressError` for a key that is no address.
    """
    if isinstance(each, str) and each != ENGINE:
        return f"replica_slots must be a number or {ENGINE!r}, not {each!r}"
    if isinstance(each, int) and each < 1:
        return f"replica_slots must be at least 1, not {each}"
    known = {replica_name(url) for url in replicas}
    taken: dict[str, str] = {}
    for url, slots in by_url.items():
        check_address(url)
        other = taken.setdefault(replica_name(url), url)
        if other != url:
            return f"[slots] names one replica twice: {other!r} and {url!r}"
        if slots < 1:
            return f"[slots] {url!r}: must be at least 1, not {slots}"
        if not others and replica_name(url) not in known:
            return f"[slots] names {url!r}, which is no replica; there are: {', '.join(replicas)}"
    return None
