"""From the core's snapshot to the planner's integers and back, without loss; order of application by value."""

from hypothesis import given
from hypothesis import strategies as st

from tao.core.ids import ReplicaId, SessionId
from tao.core.plans import Candidate, PlanRequest
from tao.planning import Item, Knapsack, SparseValues, Triple, solve
from tao.policies import assignments_of, problem_of

A, B = ReplicaId("a"), ReplicaId("b")


def candidate(
    name: str,
    weight_tokens: int = 100,
    credit: dict[ReplicaId, int] | None = None,
    ready: int = 0,
    footprint_tokens: int = 50,
    eligible: tuple[ReplicaId, ...] | None = None,
) -> Candidate:
    return Candidate(
        SessionId(name),
        1,
        weight_tokens,
        footprint_tokens,
        ready,
        credit or {},
        3.0,
        eligible=eligible,
        home=A,
    )


def request(*candidates: Candidate, a: int = 1_000, b: int = 1_000) -> PlanRequest:
    return PlanRequest("dp", {A: a, B: b}, candidates)


def test_replicas_become_knapsacks_and_candidates_items() -> None:
    problem = problem_of(
        request(candidate("p", 70, {A: 30}, 1, 60), candidate("q", eligible=(B,)), a=500, b=400)
    )
    assert problem.knapsacks == (Knapsack("a", 500), Knapsack("b", 400))
    assert problem.items[0] == Item(
        "p", 70, SparseValues(("a", "b"), {"a": 30}, 1, 60), home="a", waited_seconds=3.0
    )
    assert dict(problem.items[0].values) == {"a": Triple(30, 1, 60), "b": Triple(0, 1, 60)}
    assert list(problem.items[1].values) == ["b"]


def test_the_answer_comes_back_most_valuable_first_then_by_id() -> None:
    asked = request(
        candidate("small", footprint_tokens=10),
        candidate("b"),
        candidate("a"),
        candidate("ready", ready=1, footprint_tokens=5),
        candidate("warm", credit={A: 5}, footprint_tokens=1),
        candidate("warm elsewhere", credit={B: 9}, footprint_tokens=2),
        candidate("left out", credit={A: 1_000}),
    )
    everywhere_a: dict[str, str] = {c.session: "a" for c in asked.candidates if c.session != "left out"}
    order = [session for session, _ in assignments_of(asked, everywhere_a)]
    assert order == ["warm", "ready", "a", "b", "small", "warm elsewhere"]


def test_no_candidates() -> None:
    assert assignments_of(request(), {}) == ()
    assert problem_of(request()).items == ()


POOLS = st.lists(
    st.builds(
        lambda weight, credit, ready, footprint: (weight, credit, ready, footprint),
        st.integers(0, 600),
        st.dictionaries(st.sampled_from([A, B]), st.integers(0, 500)),
        st.integers(0, 1),
        st.integers(0, 600),
    ),
    max_size=6,
)


@given(POOLS)
def test_what_the_planner_answers_fits_and_names_what_was_asked(
    pool: list[tuple[int, dict[ReplicaId, int], int, int]],
) -> None:
    asked = request(*[candidate(f"s{n}", *values) for n, values in enumerate(pool)])
    answer = solve(problem_of(asked), asked.solver)
    pairs = assignments_of(asked, answer.assignment)
    assert dict(pairs) == answer.assignment
    for replica, free_tokens in asked.free_tokens.items():
        weights = {c.session: c.weight_tokens for c in asked.candidates}
        assert sum(weights[session] for session, on in pairs if on == replica) <= free_tokens
