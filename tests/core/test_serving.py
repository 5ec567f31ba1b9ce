"""The index of who serves what: it answers from memory, and what it remembers is bounded."""

from tao.core.ids import ReplicaId
from tao.core.serving import MODELS_REMEMBERED_MAX, Serving
from tao.core.session import Replica


def test_models_that_clients_make_up_do_not_fill_the_memory() -> None:
    """Any client may name any model: the answers stay right while those remembered are forgotten to make room."""
    serving = Serving()
    named = Replica(ReplicaId("a"), 1_000, models=("m",))
    serving.note([named], 0.0, held_back=False)
    remembered = serving.of("m")
    assert remembered == (named,)
    for number in range(MODELS_REMEMBERED_MAX - 1):
        assert serving.of(f"made up {number}") == ()
    assert serving.of("m") is remembered, "as many as are remembered are still there"
    assert serving.of("one too many") == ()
    assert serving.of("m") == (named,)
    assert serving.of("m") is not remembered, "it was looked up afresh"
