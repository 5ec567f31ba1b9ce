"""What the sessions of the pool need is weighed once, and again when a session has changed."""

from core_kit import World

from tao.core.ids import SessionId
from tao.core.ports import View
from tao.core.session import Session
from tao.policies import make_policy
from tao.policies.needs import PoolNeeds


class Scales:
    """Weighs by the footprint, and remembers whom."""

    def __init__(self) -> None:
        self.weighed: list[SessionId] = []

    def __call__(self, view: View, session: Session) -> int:
        self.weighed.append(session.id)
        return session.footprint_tokens


def known(needs: PoolNeeds, w: World) -> dict[str, int]:
    return {need.session.id: need.tokens for need in needs.of(w.scheduler.view)}


def test_only_who_changed_is_weighed_again() -> None:
    w = World(make_policy("tao"), a=10_000)
    scales = Scales()
    needs = PoolNeeds(scales)
    assert known(needs, w) == {}
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "s1", 3_000)
    w.arrive("t", "t1", 4_000)
    assert known(needs, w) == {"s": 3_000, "t": 4_000}
    assert known(needs, w) == {"s": 3_000, "t": 4_000}
    w.arrive("t", "t2", 4_100)
    assert known(needs, w) == {"s": 3_000, "t": 4_100}
    assert scales.weighed == ["s", "t", "t"]


def test_a_session_that_comes_back_under_its_name_is_weighed_afresh() -> None:
    w = World(make_policy("tao"), a=10_000)
    scales = Scales()
    needs = PoolNeeds(scales)
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "s1", 3_000)
    assert known(needs, w) == {"s": 3_000}
    w.leave("s1")
    assert "s" not in w.scheduler.view.pool
    w.arrive("s", "s2", 2_000)
    assert known(needs, w) == {"s": 2_000}
    assert scales.weighed == ["s", "s"]
