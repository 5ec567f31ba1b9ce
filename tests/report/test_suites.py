"""Suites as data: those of the package are sound, their small forms are small, and wrong ones are named."""

from pathlib import Path

import pytest

from tao.policies import make_policy
from tao.report.quick import made_small
from tao.report.suite import (
    PolicySuite,
    SnapshotSuite,
    Suite,
    SuiteError,
    cases_of,
    load_suite,
    parse_suite,
    points_of,
    suite_names,
)
from tao.sim.workload import ClosedLoop

AVAILABLE = {
    "mini_swe_agent_swebench_verified": 500,
    "claude_code_go_tool": 271,
    "claude_code_ts_app": 98,
    "claude_code_kv_cache_tester": 741,
}
WANTED = {
    "main",
    "ablation",
    "cache",
    "mixed",
    "low-concurrency",
    "overload",
    "knee",
    "scale",
    "sensitivity",
    "readiness",
    "joint",
}
TEXT = """
name = "mine"
title = "t"
description = "d"
policies = ["tao", "thunderagent"]
baselines = ["thunderagent"]
[[setting]]
name = "s"
profile = "qwen3-32b-tp2-h100"
traces = ["x"]
sessions = 30
replicas = [4]
concurrency = [8, 16, 32]
"""


def test_the_suites_of_the_package() -> None:
    assert set(suite_names()) >= WANTED


@pytest.mark.parametrize("name", suite_names())
def test_a_suite_names_policies_profiles_and_traces_that_exist(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.seeds >= (5 if isinstance(suite, PolicySuite) else 1)
    cases = list(cases_of(suite, AVAILABLE))
    for case in cases:
        make_policy(case.spec.policy)
    assert len({(case.point, case.policy, case.seed, case.is_floor) for case in cases}) == len(cases)


@pytest.mark.parametrize("name", suite_names())
def test_the_small_form_is_small(name: str) -> None:
    suite = load_suite(name)

    def sessions(of: Suite) -> int:
        return sum(case.spec.order.count_max or 0 for case in cases_of(of, AVAILABLE))

    assert 0 < sessions(made_small(suite)) < sessions(suite) / 6


def test_a_policy_may_be_run_with_tools_that_say_when_they_return() -> None:
    cases = [case for case in cases_of(load_suite("readiness"), AVAILABLE) if case.policy.startswith("tao")]
    told = {case.policy for case in cases if case.spec.workload.returns_told}
    assert told == {"tao+told-returns"}
    assert {case.spec.policy for case in cases if case.policy in told} == {"tao"}


def test_main_has_the_settings_of_both_tables() -> None:
    names = [point.setting.profile.split("-")[0] for point in points_of(load_suite("main"))]
    assert {name: names.count(name) for name in names} == {"deepseek": 6, "qwen3": 6, "glm": 6}


def test_every_seed_is_an_order_that_all_policies_share() -> None:
    cases = list(cases_of(parse_suite(TEXT, "t"), {"x": 500}))
    assert len(cases) == 3 * 5 * 3
    by_seed = {(case.point, case.seed): case.spec.order.seed for case in cases}
    assert all(case.spec.order.seed == by_seed[case.point, case.seed] for case in cases)
    assert {case.spec.order.seed for case in cases} == set(range(5))
    floors = [case for case in cases if case.is_floor]
    assert len(floors) == 15
    assert all(case.spec.replica_kv_tokens > 10**11 for case in floors)


def test_too_few_sessions_are_played_repeatedly() -> None:
    (case, *_) = cases_of(parse_suite(TEXT, "t"), {"x": 12})
    assert (case.spec.order.count_max, case.spec.order.repeats) == (30, 3)


def test_pairs_of_replicas_and_workers() -> None:
    text = TEXT.replace("replicas = [4]", "replicas = [1, 2, 4]")
    pairs = [(point.replicas, point.concurrency) for point in points_of(parse_suite(text, "t"))]
    assert pairs == [(1, 8), (2, 16), (4, 32)]


def test_small_settings_keep_the_pressure() -> None:
    suite = made_small(parse_suite(TEXT, "t"))
    (point,) = points_of(suite)
    assert isinstance(next(iter(cases_of(suite, {"x": 9}))).spec.arrivals, ClosedLoop)
    assert (point.replicas, point.concurrency, point.kv_tokens) == (2, 4, 160_000)  # a quarter of 4 x 320,000


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name =", "nome ="), "nome"),
        (("[8, 16, 32]", "[0]"), "concurrency"),
        (("replicas = [4]", "replicas = [4, 8]"), "same length"),
        (("replicas = [4]", "replicas = []"), "'s': replicas: none is named"),
        (("replicas = [4]", "replicas = [4, 4, 8]\nvariants = []"), "'s': variants: none is named"),
        (("[8, 16, 32]", "[]"), "'s': concurrency: none is named"),
        (("[8, 16, 32]", "[8, 16, 8]"), "'s': concurrency: a number is there twice"),
        (
            ("replicas = [4]\nconcurrency = [8,", "replicas = [1, 2, 4]\nconcurrency = [16,"),
            "same number of workers",
        ),
        (('traces = ["x"]', "traces = []"), "'s': traces: none is named"),
        (('traces = ["x"]', 'traces = ["x", "x"]'), "'s': traces: x is there twice"),
        (('["tao", "thunderagent"]', '["tao", "tao", "thunderagent"]'), "policies: tao is there twice"),
        (
            ('["tao", "thunderagent"]\nbaselines = ["thunderagent"]', "[]\nbaselines = []"),
            "policies: none is named",
        ),
        (('["tao",', '["toa",'), "policies: no policy is named 'toa'; did you mean 'tao'"),
        (('["tao",', '["nowhere:Mine",'), "policies: there is no module 'nowhere'"),
        (
            ("sessions = 30", 'variants = [{name = "v", policies = ["toa"]}]'),
            "policies of variant 'v': no policy",
        ),
        (("sessions = 30", 'variants = [{name = "v"}, {name = "v"}]'), "variant names: v is there twice"),
        (("sessions = 30", 'variants = [{name = "v", decode = inf}]'), "decode"),
        (("sessions = 30", 'variants = [{name = "v", kv = nan}]'), "kv"),
        (("sessions = 30", "sessions = 10_000_000"), "sessions"),
        (("sessions = 30", "hold_seconds_max = nan"), "hold_seconds_max"),
        (("sessions = 30", "kv_tokens = 1"), "kv_tokens"),
        (("sessions = 30", "system_tokens = -1"), "system_tokens"),
        (("[[setting]]", "seeds = 1001\n[[setting]]"), "seeds"),
        (
            ("[[setting]]", 'quick = {settings = ["none"]}\n[[setting]]'),
            "quick.settings that are no settings of it: none",
        ),
        (
            ("[[setting]]", 'quick = {policies = ["aimd"]}\n[[setting]]'),
            "quick.policies that are no policies of it: aimd",
        ),
        (('name = "mine"', 'name = "../mine"'), "names the report's files"),
        (('name = "mine"', 'name = ""'), "names the report's files"),
        (('name = "mine"', f"name = {'[' * 5000}"), "nested too deeply"),
        (('baselines = ["thunderagent"]', 'baselines = ["dynamo-kv"]'), "dynamo-kv"),
        (("title", "[title"), "suite wrong.toml"),
        (("name =", 'kind = "other"\nname ='), "other"),
    ],
)
def test_a_wrong_suite_is_named(change: tuple[str, str], says: str) -> None:
    with pytest.raises(SuiteError, match=says.replace("[", r"\[")):
        parse_suite(TEXT.replace(*change, 1), "wrong.toml")


def test_settings_of_one_name_are_refused() -> None:
    twice = TEXT + TEXT[TEXT.index("[[setting]]") :]
    with pytest.raises(SuiteError, match="setting names: s is there twice"):
        parse_suite(twice, "wrong.toml")


def test_a_setting_that_cannot_be_run_is_named() -> None:
    for change, says in (
        (("sessions = 30", 'variants = [{name = "v", kv = 1e-6}]'), "suite mine: 's': 0 KV tokens"),
        (("qwen3-32b-tp2-h100", "h900"), "suite mine: 's': unknown profile"),
        (
            ("sessions = 30", 'variants = [{name = "v", tool_delay_seconds = [5.0, 2.0]}]'),
            "'s': a tool delay needs",
        ),
    ):
        with pytest.raises(SuiteError, match=says):
            list(cases_of(parse_suite(TEXT.replace(*change), "t"), {"x": 9}))
    with pytest.raises(SuiteError, match="x: no session is in there"):
        list(cases_of(parse_suite(TEXT, "t"), {"x": 0}))


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT, encoding="utf-8-sig")
    assert load_suite(str(file)).name == "mine"


SNAPSHOTS = TEXT.replace('baselines = ["thunderagent"]', 'solvers = ["exact", "bfd"]\nkind = "snapshots"')


def test_a_suite_of_snapshots_records_every_run_and_no_floor() -> None:
    suite = parse_suite(SNAPSHOTS, "t")
    assert isinstance(suite, SnapshotSuite)
    assert (suite.solvers, suite.reference, suite.seeds) == (("exact", "bfd"), "exact", 1)
    cases = list(cases_of(suite, {"x": 500}))
    assert len(cases) == 3 * 2
    assert not any(case.is_floor for case in cases)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"bfd"', '"best"'), "solvers that do not exist: best; known: auto, dp"),
        (('"exact", ', ""), "a reference that is no solver of it: exact"),
        (("solvers", "solver"), "solver"),
    ],
)
def test_a_wrong_suite_of_snapshots_is_named(change: tuple[str, str], says: str) -> None:
    with pytest.raises(SuiteError, match=says):
        parse_suite(SNAPSHOTS.replace(*change, 1), "wrong.toml")


def test_an_unknown_suite_lists_those_there_are() -> None:
    with pytest.raises(SuiteError, match="ablation"):
        load_suite("ablations")
    with pytest.raises(SuiteError, match="cannot be read"):
        load_suite("nowhere.toml")
