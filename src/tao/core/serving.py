"""Which replicas take sessions now, and which of them serve what: the index that every placement asks.

A replica serves the models that its engine named, or whatever is asked where it named none. While weights are updated no
replica takes anything. It must not know sessions.
"""

from collections.abc import Iterable

from tao.core.session import Replica, ReplicaState

MODELS_REMEMBERED_MAX = 1024


class Serving:
    """`up`: the replicas that take admissions, in the order in which they joined. `note` after every change of one."""

    def __init__(self) -> None:
        self.up: tuple[Replica, ...] = ()
        self._alike = True  # all of them serve whatever is asked
        self._healthy: tuple[Replica, ...] = ()
        self._by_model: dict[str, tuple[Replica, ...]] = {}
        self._lost_at: dict[str, float] = {}
        self._all_lost_at = 0.0  # none has joined yet
        self._largest_tokens: int | None = None

    def note(self, replicas: Iterable[Replica], at: float, *, held_back: bool) -> None:
        """Take in which replicas are up now. `held_back`: none of them takes anything for the time being."""
        before = self._healthy
        self._healthy = tuple(replica for replica in replicas if replica.state is ReplicaState.UP)
        self.up = () if held_back else self._healthy
        self._alike = all(replica.models is None for replica in self.up)
        self._by_model = {}
        self._largest_tokens = max((replica.capacity_tokens for replica in self.up), default=None)
        if any(replica.models is None for replica in self._healthy):
            self._lost_at = {}
            return
        if any(replica.models is None for replica in before):
            self._all_lost_at = at
        served = _models(self._healthy)
        lost = {model: at for model in _models(before) if model not in served}
        kept = {model: since for model, since in self._lost_at.items() if model not in served}
        self._lost_at = dict(list((kept | lost).items())[-MODELS_REMEMBERED_MAX:])

    def of(self, model: str) -> tuple[Replica, ...]:
        """Those of `up` that serve the model; all of them for a request that names none."""
        if self._alike or not model:
            return self.up
        found = self._by_model.get(model)
        if found is None:
            if len(self._by_model) >= MODELS_REMEMBERED_MAX:
                self._by_model.clear()
            found = self._by_model[model] = tuple(replica for replica in self.up if replica.serves(model))
        return found

    def unserved_since(self, model: str) -> float:
        """Since when no replica that is up serves the model; to be asked only while none does."""
        return max(self._lost_at.get(model, 0.0), self._all_lost_at)

    def largest_capacity_tokens(self, model: str) -> int | None:
        """Of those that serve the model; None where none does."""
        if self._alike or not model:
            return self._largest_tokens
        return max((replica.capacity_tokens for replica in self.of(model)), default=None)


def _models(replicas: Iterable[Replica]) -> dict[str, None]:
    """All models that are named, and the empty one where there is any replica: a request may name none."""
    named = [model for replica in replicas for model in ("", *(replica.models or ()))]
    return dict.fromkeys(named)
