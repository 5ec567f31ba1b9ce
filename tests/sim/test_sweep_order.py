"""Runs of a sweep begin with the longest."""

from tao.enginemodel import load_profile
from tao.sim.run import Order, RunSpec
from tao.sim.sweep import expected_turns, longest_first
from tao.sim.workload import ClosedLoop
from tao.traces import read_trace, sample_path

TRACES = {"sample": list(read_trace(sample_path()))}


def spec(sessions: int, workers: int) -> RunSpec:
    profile = load_profile("qwen3-32b-tp2-h100")
    return RunSpec("tao", profile, 2, ClosedLoop(workers), ("sample",), order=Order(sessions))


def test_the_longest_begin_first_and_of_equals_those_with_more_workers() -> None:
    specs = [spec(10, 4), spec(40, 4), spec(10, 8), spec(20, 16), spec(40, 4)]
    assert longest_first(specs, TRACES) == [1, 4, 3, 2, 0]


def test_expected_turns_are_those_of_the_sessions_that_are_played() -> None:
    turns = sum(len(session.turns) for session in TRACES["sample"])
    assert expected_turns(spec(40, 4), TRACES) == turns
    assert expected_turns(spec(10, 4), TRACES) == turns / 4
