"""A turn that refers to something that one replica holds goes there, or waits for it with the others."""

from core_kit import World, of_kind

from tao.core.commands import AdmitSession, ComputePlan, DispatchTurn, Reason
from tao.policies import make_policy


def test_a_pinned_turn_goes_to_its_replica_whatever_the_policy_says() -> None:
    w = World(make_policy("tao"), a=100_000, b=50_000)
    [admit, dispatch] = w.arrive("s", "t1", pinned="b")
    assert isinstance(admit, AdmitSession)
    assert isinstance(dispatch, DispatchTurn)
    assert (admit.replica, dispatch.replica, dispatch.reason) == ("b", "b", Reason.PINNED)


def test_an_admitted_session_moves_with_its_pin() -> None:
    w = World(make_policy("tao"), a=100_000, b=50_000)
    w.arrive("s", "t1")
    w.finish("t1")
    w.arrive("s", "t2", 1_200, pinned="b")
    assert (w.reserved("a"), w.reserved("b")) == (0, 1_712)
    assert w.session("s").home == "b"


def test_a_pin_to_a_replica_that_is_gone_is_no_pin() -> None:
    w = World(make_policy("tao"), a=100_000, b=50_000)
    w.lose("b")
    [_, dispatch] = w.arrive("s", "t1", pinned="b")
    [_, unknown] = w.arrive("r", "u1", pinned="nowhere")
    assert isinstance(dispatch, DispatchTurn)
    assert isinstance(unknown, DispatchTurn)
    assert [(d.replica, d.reason) for d in (dispatch, unknown)] == [("a", Reason.ROOM)] * 2


def test_a_plan_offers_a_pinned_session_only_its_replica() -> None:
    w = World(make_policy("tao"), a=20_000, b=10_000)
    w.arrive("s", "t1", 9_000)
    w.finish("t1", 9_000, 100)  # evidence on a
    w.lose("a")
    w.join("a", 20_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "t2", 9_300, pinned="b")
    [compute] = of_kind(w.wake(), ComputePlan)
    [pinned] = [c for c in compute.request.candidates if c.session == "s"]
    assert pinned.eligible == ("b",)
    [dispatch] = [d for d in of_kind(w.solve(compute), DispatchTurn) if d.session == "s"]
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.PLANNED)


def test_credit_elsewhere_does_not_count_for_a_pinned_session() -> None:
    w = World(make_policy("tao"), a=20_000, b=10_000)
    w.arrive("s", "t1", 9_000)
    w.finish("t1", 9_000, 100)
    w.resize("a", 9_000)
    *_, nothing = w.wake()  # interrupted: the reservation exceeds the capacity
    assert isinstance(nothing, ComputePlan)
    w.answer(nothing)
    w.resize("a", 20_000)
    w.arrive("x", "x1", 9_000)
    w.arrive("s", "t2", 9_300, pinned="b")
    [compute] = of_kind(w.after(1).wake(), ComputePlan)
    [pinned] = [c for c in compute.request.candidates if c.session == "s"]
    assert (pinned.eligible, pinned.credit_tokens) == (("b",), {})
    assert of_kind(w.solve(compute), DispatchTurn)


def test_a_pin_overrules_the_bound_and_is_named() -> None:
    w = World(make_policy("tao"), a=10_000, b=10_000)
    w.arrive("x", "x1", 9_000)
    w.lose("b")
    w.arrive("s", "t1", 5_000, pinned="b")
    w.join("b", 6_000)
    w.end("x")
    w.finish("x1")  # now a is the roomier one
    [dispatch] = of_kind(w.after(300).wake(), DispatchTurn)
    assert (dispatch.replica, dispatch.reason) == ("b", Reason.PINNED)
