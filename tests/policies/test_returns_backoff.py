"""Our return predictor: who speaks at which level, what it forgets, what bounds it, and how its state travels."""

import json
from math import inf, isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao.core.events import ToolCall
from tao.policies.returns import (
    PREDICTORS,
    Absence,
    BackoffHistogram,
    Forecast,
    LearnedStateError,
    ReturnPredictor,
    UnknownPredictorError,
    chance_within,
    make_predictor,
    remaining_seconds,
)
from tao.policies.returns.backoff import LEVELS

GIT = ToolCall("Bash", "git")
CARGO = ToolCall("Bash", "cargo")


def away(tool: ToolCall = GIT, tenant: str = "t", session: str = "s") -> Absence:
    return Absence((tool,), tenant, session)


def taught(*lessons: tuple[Absence, float], times: int = 40) -> BackoffHistogram:
    predictor = BackoffHistogram()
    for _ in range(times):
        for absence, seconds in lessons:
            predictor.learn(absence, seconds)
    return predictor


def median(predictor: ReturnPredictor, absence: Absence) -> float:
    return predictor.predict(absence).quantile(0.5)


def near(seconds: float) -> object:
    """Within the bin: eight bins a decade are a factor of 1.33."""
    return pytest.approx(seconds, rel=0.34)


def test_nothing_known() -> None:
    predictor = BackoffHistogram()
    assert median(predictor, away()) == near(5.0)
    assert median(predictor, Absence(())) == near(120.0)
    assert predictor.predict(away()).source == "default"


def test_each_level_speaks_where_the_particular_one_is_silent() -> None:
    predictor = taught((away(GIT), 0.2), (away(CARGO), 30.0))
    assert median(predictor, away(GIT, "other", "other")) == near(0.2)
    assert median(predictor, away(CARGO, "other", "other")) == near(30.0)
    unknown_head = predictor.predict(away(ToolCall("Bash", "zig"), "other", "other"))
    assert unknown_head.source == "history of this tool"
    assert 0.1 < unknown_head.quantile(0.2) < unknown_head.quantile(0.8) < 40.0
    unknown_tool = predictor.predict(away(ToolCall("Fetch"), "other", "other"))
    assert unknown_tool.source == "history of all tools"


def test_a_tenant_and_a_session_outweigh_the_rest() -> None:
    predictor = taught((away(GIT, "slow", "a"), 9.0), (away(GIT, "quick", "b"), 0.1))
    assert median(predictor, away(GIT, "slow", "new")) == near(9.0)
    assert median(predictor, away(GIT, "quick", "new")) == near(0.1)
    for _ in range(6):
        predictor.learn(away(GIT, "quick", "mine"), 60.0)
    assert median(predictor, away(GIT, "quick", "mine")) == near(60.0)
    assert predictor.predict(away(GIT, "quick", "mine")).source == "history of this session"


def test_it_forgets_exponentially() -> None:
    predictor = taught((away(), 0.1), times=2_000)
    for _ in range(200):
        predictor.learn(away(session="later"), 20.0)
    assert median(predictor, away(session="new")) == near(20.0)


def test_a_declared_timeout_makes_another_class_and_bounds_it() -> None:
    patient = ToolCall("Bash", "make", timeout_seconds=600.0)
    predictor = taught((away(ToolCall("Bash", "make")), 1.0), (away(patient), 300.0))
    assert median(predictor, away(patient)) == near(300.0)
    assert median(predictor, away(ToolCall("Bash", "make"))) == near(1.0)
    hasty = ToolCall("Bash", "make", timeout_seconds=500.0)
    slow = taught((away(hasty), 2_000.0))
    assert slow.predict(away(hasty)).quantile(0.9) < 570.0
    assert 0.0 < slow.predict(away(hasty)).survival(1_000.0) < 0.01


@pytest.mark.parametrize(
    ("sleep", "timeout", "least"), [(30.0, None, 30.0), (30.0, 10.0, 10.0), (0.0, None, 0.0)]
)
def test_a_literal_sleep_is_what_it_takes_at_least_and_its_timeout_bounds_it(
    sleep: float, timeout: float | None, least: float
) -> None:
    forecast = taught((away(), 4.0)).predict(away(ToolCall("Bash", "sleep", sleep, timeout)))
    assert forecast.source == "sleep"
    assert forecast.survival(least - 0.01) == 1.0
    assert least <= forecast.quantile(0.5) <= least + 0.5
    assert forecast.interval(0.8)[0] >= least
    assert least <= forecast.conservative_seconds <= forecast.exhausted_seconds


def test_what_follows_a_sleep_is_learned() -> None:
    call = ToolCall("Bash", "sleep", 10.0)
    predictor = taught((away(call), 17.0))
    assert median(predictor, away(ToolCall("Bash", "sleep", 100.0))) == pytest.approx(107.0, abs=2.5)


def test_a_background_call_returns_at_once_and_teaches_no_other() -> None:
    background = ToolCall("Bash", "make", background=True)
    assert median(BackoffHistogram(), away(background)) < 0.1
    predictor = taught((away(background), 0.01), (away(ToolCall("Bash", "make")), 80.0))
    assert median(predictor, away(background)) == near(0.01)
    assert median(predictor, away(ToolCall("Bash", "make"))) == near(80.0)


def test_parallel_tools_return_with_the_last() -> None:
    predictor = taught((away(GIT), 0.2), (away(CARGO), 30.0))
    both = predictor.predict(Absence((GIT, CARGO, GIT), "t", "s"))
    alone = predictor.predict(away(CARGO))
    for level in (0.1, 0.5, 0.9):
        assert both.quantile(level) >= alone.quantile(level)
    assert both.survival(5.0) >= alone.survival(5.0)
    assert both.interval(0.8)[1] >= alone.interval(0.8)[1]
    assert both.exhausted_seconds >= both.conservative_seconds > 20.0
    assert both.source == alone.source


def test_parallel_tools_teach_only_the_history_of_all() -> None:
    predictor = taught((Absence((GIT, CARGO), "t", "s"), 60.0))
    assert predictor.predict(away(GIT)).source == "history of all tools"
    assert median(predictor, away(GIT)) == near(60.0)


def test_humans_are_a_class_of_their_own() -> None:
    predictor = taught((away(), 1.0), (Absence((), "t", "s"), 400.0))
    assert median(predictor, Absence((), "t", "s")) == near(400.0)
    assert median(predictor, away()) == near(1.0)


def test_a_call_that_never_ended_says_at_least_this_long() -> None:
    plain = taught((away(), 1.0), (away(), 200.0), times=10)
    censored = taught((away(), 1.0), (away(), 200.0), times=10)
    for _ in range(20):
        censored.learn_unfinished(away(), 50.0)
    assert censored.predict(away()).survival(50.0) > plain.predict(away()).survival(50.0) + 0.1
    lone = BackoffHistogram()
    for _ in range(30):
        lone.learn_unfinished(away(), 500.0)
    assert lone.predict(away()).survival(400.0) > 0.8
    before = json.dumps(lone.export_state())
    lone.learn_unfinished(Absence((GIT, CARGO)), 500.0)
    assert json.dumps(lone.export_state()) == before


def test_the_longer_it_lasts_the_longer_it_will() -> None:
    forecast = taught((away(), 1.0), (away(), 200.0)).predict(away())
    assert remaining_seconds(forecast, 0.5, 10.0) > 100.0
    assert remaining_seconds(forecast, 0.5, 5_000.0) > 1_000.0
    assert chance_within(forecast, 0.5, 1.0) > 0.4
    assert chance_within(forecast, 10.0, 1.0) < 0.05


def test_the_eighty_percent_interval_covers_after_the_world_has_changed() -> None:
    """Durations from a bin to a decade wide; the level is corrected by what it covered."""
    predictor = BackoffHistogram()
    covered = 0
    for index in range(3_000):
        seconds = 10.0 ** ((index * 7919 % 1000) / 1000 + (2 if index > 1_000 else 0))
        absence = away(session=str(index % 7))
        low, high = predictor.predict(absence).interval(0.8)
        covered += index >= 1_500 and low <= seconds <= high
        predictor.learn(absence, seconds)
    assert 0.75 <= covered / 1_500 <= 0.88


def test_it_does_not_matter_when_intervals_are_asked_for() -> None:
    asked, silent = BackoffHistogram(), BackoffHistogram()
    for index in range(300):
        seconds = 10.0 ** ((index * 7919 % 1000) / 1000)
        for predictor in (asked, silent):
            predictor.learn(away(session=str(index % 7)), seconds)
        asked.predict(away()).interval(0.8)
    assert asked.predict(away()).interval(0.8) == silent.predict(away()).interval(0.8)
    assert asked.export_state() == silent.export_state()


def test_invented_names_cannot_grow_it() -> None:
    predictor = BackoffHistogram()
    for index in range(LEVELS[0].keys_max + 500):
        tool = ToolCall(f"{index}" + "\N{GRINNING FACE}" * 500, "x" * 500)
        predictor.learn(Absence((tool,), "y" * 500 + str(index), str(index)), 1.0)
    for table, level in zip(predictor._tables, LEVELS, strict=True):
        assert len(table) <= level.keys_max
        names = [str(key) for key, _ in table.newest(10)]
        assert all(name.isascii() and len(name) < 4 * 50 for name in names)
    assert predictor.predict(away(tool, "y" * 500 + str(index))).source == "history of this tenant"


def test_what_was_learned_of_longest_ago_gives_way() -> None:
    predictor = BackoffHistogram()
    predictor.learn(away(ToolCall("old")), 1.0)
    predictor.learn(away(ToolCall("kept")), 1.0)
    for index in range(LEVELS[0].keys_max):
        predictor.learn(away(ToolCall(f"new-{index}")), 1.0)
        if index == 9:
            predictor.learn(away(ToolCall("kept")), 1.0)
    assert predictor.predict(away(ToolCall("old"), "", "")).source == "history of all tools"
    assert predictor.predict(away(ToolCall("kept"), "", "")).source == "history of this command"


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_a_learned_state_travels_as_json(name: str) -> None:
    predictor = make_predictor(name)
    for index in range(300):
        predictor.learn(away(CARGO if index % 3 else GIT, session=""), 1.0 + index % 5)
        predictor.learn(Absence(()), 90.0)
    other = make_predictor(name)
    other.import_state(json.loads(json.dumps(predictor.export_state())))
    for absence in (away(GIT, session=""), away(CARGO, session=""), away(ToolCall("x")), Absence(())):
        assert other.predict(absence).quantile(0.5) == pytest.approx(
            predictor.predict(absence).quantile(0.5), rel=1e-3
        )
    assert other.predict(away(GIT, session="")).interval(0.8) == predictor.predict(
        away(GIT, session="")
    ).interval(0.8)


@pytest.mark.parametrize(
    "damage",
    [
        {"roots": None},
        {"roots": {"run": [[64, 1.0]]}},
        {"roots": {"run": [[0, -1.0]]}},
        {"roots": {"run": [[0, 1e30]]}},
        {"roots": {"run": [[0, True]]}},
        {"roots": {"run": [[0, "1"]]}},
        {"roots": {"run": ["x"]}},
        {"roots": {"run": []}},
        {"levels": {"tool": [["Bash"]], "command": [], "tenant": []}},
        {"levels": {"tool": [[3, []]], "command": [], "tenant": []}},
        {"levels": {"tool": []}},
        {"roots": {kind: [] for kind in ("run", "after-sleep", "background", "human")}},
        {"coverage": [1.0]},
        {"coverage": [0.0] * 51},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage: dict[str, object]) -> None:
    predictor = taught((away(), 3.0))
    before = json.dumps(predictor.export_state())
    with pytest.raises(LearnedStateError):
        predictor.import_state({**json.loads(before), **damage})
    assert json.dumps(predictor.export_state()) == before


@pytest.mark.parametrize(
    "damage",
    [{"global": 1}, {"global": [1, 2, 3, 4, "x"]}, {"tools": None}, {"tools": [[1, [0, 0, 0, 0, 0]]]}],
    ids=str,
)
def test_a_damaged_state_of_the_papers_predictor_is_refused(damage: dict[str, object]) -> None:
    predictor = make_predictor("empirical-bernstein")
    predictor.learn(away(), 3.0)
    before = predictor.export_state()
    with pytest.raises(LearnedStateError):
        predictor.import_state({**json.loads(json.dumps(before)), **damage})
    assert predictor.export_state() == before


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownPredictorError, match=r"did you mean 'backoff-histogram'\?.*per-tool-history"):
        make_predictor("backof-histogram")


tools = st.builds(
    ToolCall,
    st.text(max_size=60),
    st.text(max_size=60),
    st.none() | st.floats(0, 1e9),
    st.none() | st.floats(0, 1e9),
    st.booleans(),
)
absences = st.builds(
    Absence, st.lists(tools, max_size=4).map(tuple), st.text(max_size=3), st.text(max_size=3)
)


@pytest.mark.parametrize("name", list(PREDICTORS))
@settings(max_examples=60, deadline=None)
@given(lessons=st.lists(st.tuples(absences, st.floats(0, 1e7), st.booleans()), max_size=20), asked=absences)
def test_every_forecast_is_a_distribution(
    name: str, lessons: list[tuple[Absence, float, bool]], asked: Absence
) -> None:
    predictor = make_predictor(name)
    for absence, seconds, ended in lessons:
        (predictor.learn if ended else predictor.learn_unfinished)(absence, seconds)
    for absence in (asked, *(lesson[0] for lesson in lessons[:3])):
        check_distribution(predictor.predict(absence))


def check_distribution(forecast: Forecast) -> None:
    quantiles = [forecast.quantile(level) for level in (0.001, 0.1, 0.5, 0.9, 0.999)]
    assert quantiles == sorted(quantiles)
    assert all(isfinite(q) and q >= 0 for q in quantiles)
    survivals = [forecast.survival(seconds) for seconds in (0.0005, 0.01, 1.0, 100.0, 1e5, 1e12)]
    assert survivals == sorted(survivals, reverse=True)
    assert all(0.0 <= s <= 1.0 for s in survivals)
    assert 0.0 <= forecast.conservative_seconds <= forecast.exhausted_seconds < inf
    for level in (0.5, 0.8, 0.95):
        low, high = forecast.interval(level)
        assert 0.0 <= low <= high < inf
    for elapsed in (0.0, 1.0, 1e4, 1e9):
        assert 0.0 <= chance_within(forecast, elapsed, 1.0) <= 1.0
        assert 0.0 <= remaining_seconds(forecast, 0.5, elapsed) < inf
