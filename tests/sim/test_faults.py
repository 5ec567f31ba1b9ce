"""Whole runs in which things go wrong, by seed: every session still ends, and the checkers find nothing.

A failure names the command that repeats the run outside of the tests.
"""

import msgspec
import pytest

from tao.core import SchedulerSettings
from tao.enginemodel import load_profile
from tao.sim.faults import FaultPlan
from tao.sim.run import Order, RunResult, RunSpec, run
from tao.sim.workload import ClosedLoop
from tao.traces import TraceSession, read_trace, sample_path

SEEDS = 50
REPLICAS = 3
KINDS = {
    "abort lost",
    "cache displaced by others",
    "client hung up",
    "completion told twice",
    "plan late",
    "replica died",
    "tool never returned",
    "turn ended after it was given up",
    "wrong capacity reported",
}


@pytest.fixture(scope="module")
def sample() -> list[TraceSession]:
    return list(read_trace(sample_path()))


def spec_of(seed: int, policy: str) -> RunSpec:
    return RunSpec(
        policy=policy,
        profile=load_profile("qwen3-32b-tp2-h100"),
        replicas=REPLICAS,
        arrivals=ClosedLoop(16),
        traces=("sample",),
        kv_tokens=60_000,
        seed=seed,
        order=Order(seed=seed),
        scheduler=SchedulerSettings(hold_seconds_max=60.0, idle_seconds_max=120.0),
        faults=FaultPlan.drawn(seed, REPLICAS),
    )


def simulated(seed: int, policy: str, sample: list[TraceSession]) -> RunResult:
    """One run on the beginnings of the sample's sessions; what breaks it off or is found names how to repeat it."""
    short = [msgspec.structs.replace(session, turns=session.turns[:6]) for session in sample]
    repeat = (
        f"tao simulate --faults --policy {policy} --seed {seed} --shuffle --concurrency 16 --replicas {REPLICAS} "
        "--kv-tokens 60000 --hold-max 60"
    )
    try:
        result = run(spec_of(seed, policy), {"sample": short})
    except Exception as error:
        raise AssertionError(f"broke off; something like it: {repeat}") from error
    assert not result.violations, (result.violations, repeat)
    return result


@pytest.mark.slow
def test_fifty_seeds_of_faults_hold(sample: list[TraceSession]) -> None:
    met: set[str] = set()
    for seed in range(SEEDS):
        result = simulated(seed, ("tao", "tao", "round-robin", "thunderagent")[seed % 4], sample)
        met |= result.faults.keys()
    assert met == KINDS  # each kind of fault was really met


def test_faults_repeat_by_seed(sample: list[TraceSession]) -> None:
    once, again, other = (simulated(seed, "tao", sample).to_json_dict() for seed in (3, 3, 4))
    assert once == again != other


def test_the_slow_replica_is_slow() -> None:
    profile = load_profile("qwen3-32b-tp2-h100")
    slow = next(plan for n in range(20) if (plan := FaultPlan.drawn(n, 3)).slow_replica is not None)
    assert slow.slow_replica is not None
    index, factor = slow.slow_replica
    slowed = slow.profile_of(index, profile)
    assert slowed.decode_base(8) == pytest.approx(factor * profile.decode_base(8))
    assert slowed.prefill_ms(1000, 500) == pytest.approx(factor * profile.prefill_ms(1000, 500))
    assert slow.profile_of(index + 1, profile) is profile
