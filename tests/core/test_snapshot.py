"""The snapshot is JSON-ready and tells what is; `explain` says why a session waits or where it went."""

import json

import pytest
from core_kit import World, of_kind

from tao.core.commands import ComputePlan
from tao.core.events import TurnKind
from tao.core.ids import SessionId
from tao.policies import make_policy


def told(w: World, session: str) -> dict[str, object]:
    answer = w.scheduler.explain(SessionId(session))
    assert answer is not None
    json.dumps(answer)
    return answer


@pytest.fixture
def w() -> World:
    """On a: r runs and u stops; s waits; t acts; v acts without admission; w runs a side turn."""
    w = World(make_policy("tao"), a=20_000, b=20_000)
    w.arrive("v", "v1", 2_000)
    w.finish("v1", 2_000, 0)
    w.lose("a")
    w.lose("b")
    w.join("a", 20_000)
    [compute] = of_kind(w.wake(), ComputePlan)
    w.answer(compute)
    for session, tokens in (("t", 3_000), ("r", 2_000), ("u", 8_000)):
        w.arrive(session, f"{session}1", tokens)
    compute = of_kind(w.after(1).wake(), ComputePlan)[0]
    w.answer(compute, ("t", "a"), ("r", "a"), ("u", "a"))
    w.finish("t1", 3_000, 0)
    w.leave("u1")
    w.arrive("r", "side", 100, TurnKind.SIDE)
    w.after(2).arrive("s", "s1", 9_000)
    return w


def test_a_snapshot_is_json_and_adds_up(w: World) -> None:
    snapshot = w.scheduler.snapshot()
    assert json.loads(json.dumps(snapshot)) == snapshot
    replicas = snapshot["replicas"]
    assert isinstance(replicas, list)
    for replica in replicas:
        assert replica["free_tokens"] == replica["capacity_tokens"] - replica["reserved_tokens"]
    sessions = snapshot["sessions"]
    assert isinstance(sessions, list)
    phases = {session["id"]: session["phase"] for session in sessions}
    assert phases == {"t": "acting", "r": "running", "u": "stopping", "s": "waiting", "v": "acting"}
    assert snapshot["side_turns"] == [{"session": "r", "phase": "running", "turns": ["side"]}]
    assert (snapshot["policy"], snapshot["held_turns"], snapshot["waiting_sessions"]) == ("tao", 1, 1)
    assert snapshot["pool_sessions"] == 2
    waits = next(session for session in sessions if session["id"] == "s")
    assert (waits["home"], waits["waited_seconds"], waits["last_placement"]) == (None, 0.0, None)


def test_explain_says_why(w: World) -> None:
    assert told(w, "r")["why"] == "runs on a (placed there: planned)"
    assert told(w, "u")["why"] == "was asked to stop on a; the engine has not confirmed yet"
    assert told(w, "t")["why"] == "its tool runs; it keeps its admission on a"
    assert str(told(w, "v")["why"]).startswith("its tool runs and it holds no admission")
    free = w.free("a")
    assert told(w, "s")["why"] == (
        f"waits: needs 9512 tokens, the roomiest replica has {free} free; placed by force after 300 s"
    )
    assert w.scheduler.explain(SessionId("nobody")) is None


def test_explain_of_one_that_waits_for_the_plan_or_for_a_replica(w: World) -> None:
    w.stopped("u1")
    w.end("u")
    assert str(told(w, "s")["why"]).startswith("waits for the next plan: needs 9512 tokens, ")
    w.lose("a")
    assert told(w, "s")["why"] == "waits because no replica is up"


def test_explain_shows_the_values_of_the_policy(w: World) -> None:
    values = told(w, "t")["values"]
    assert isinstance(values, dict)
    assert values["weight_tokens"] == 3_512
    assert values["credit_tokens"] == {"a": round(3_000 * 2 ** (-2 / 10))}
    assert values["return"]["source"] == "default"
    assert "return" not in told(w, "s")["values"]  # type: ignore[operator]


def test_explain_speaks_of_no_tool_where_none_was_asked_for() -> None:
    w = World(make_policy("tao"), a=20_000)
    w.arrive("s", "s1", 1_000)
    w.finish("s1", 1_000, 10, tools=())
    assert told(w, "s")["why"] == "its last answer asked for no tool; it keeps its admission on a"


def test_explain_of_one_whose_tool_was_seen_to_end() -> None:
    w = World(make_policy("tao"), a=20_000)
    w.arrive("s", "s1", 1_000)
    w.finish("s1", 1_000, 10)
    w.after(2).tool_finished("s")
    answer = w.scheduler.explain(SessionId("s"), at=5.0)
    assert answer is not None
    assert answer["why"] == "its tool has ended, its next turn is not here yet; it keeps its admission on a"
    evidence = answer["tool_evidence"]
    assert isinstance(evidence, list)
    assert evidence[0] == {"source": "completion observed", "at": 2.0, "age_seconds": 3.0}


def test_explain_of_one_of_whom_nobody_knows_whether_it_comes_back() -> None:
    w = World(make_policy("tao"), a=20_000)
    w.arrive("s", "s1", 1_000)
    w.leave("s1")
    w.stopped("s1")
    assert told(w, "s")["why"] == "nobody knows whether it comes back: it holds nothing until it does"
