"""The two pictures of the paper's Appendix H, rebuilt as problems with the figures that it reports."""

from tao.planning import Answer, Item, Knapsack, Problem, Triple, solve


def item(name: str, weight: int, **credit: int) -> Item:
    """A session with the 512-token reserve in its weight."""
    return Item(name, weight, {b: Triple(credit.get(b, 0), 0, weight - 512) for b in ("n1", "n2")})


def free(problem: Problem, answer: Answer) -> dict[str, int]:
    left = {k.id: k.capacity_tokens for k in problem.knapsacks}
    for one in problem.items:
        if one.id in answer.assignment:
            left[answer.assignment[one.id]] -= one.weight_tokens
    return left


def test_figure_10_the_joint_decision_keeps_more_credit() -> None:
    problem = Problem(
        (Knapsack("n1", 41_400), Knapsack("n2", 42_100)),
        (item("short", 15_000, n1=1_457), item("kept", 18_000, n1=12_167), item("long", 22_000, n1=4_624)),
    )
    greedy = solve(problem, "greedy")
    assert greedy.objective.credit == 13_624
    assert free(problem, greedy) == {"n1": 8_400, "n2": 20_100}
    for solver in ("dp", "exact", "auto"):
        joint = solve(problem, solver)
        assert joint.objective.credit == 16_791
        assert free(problem, joint) == {"n1": 1_400, "n2": 27_100}


def test_figure_11_the_joint_decision_admits_the_long_session() -> None:
    shorts = (
        item("a", 10_000, n1=4_000),
        item("b", 11_000, n1=3_397),
        item("c", 12_000, n1=3_000),
        item("d", 9_000),
        item("e", 9_500),
        item("f", 10_500),
    )
    problem = Problem(
        (Knapsack("n1", 63_000), Knapsack("n2", 42_000)), (*shorts, item("177", 40_000, n2=4_552))
    )
    greedy = solve(problem, "greedy")
    assert (len(greedy.assignment), greedy.objective.credit) == (6, 10_397)
    assert "177" not in greedy.assignment
    for solver in ("dp", "exact", "auto"):
        joint = solve(problem, solver)
        assert (len(joint.assignment), joint.objective.credit) == (7, 14_949)
        assert joint.assignment["177"] == "n2"
