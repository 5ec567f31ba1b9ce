"""A run in virtual time: when turns arrive and end, worked out by hand on an engine of round figures."""

from itertools import pairwise

import msgspec
import pytest
from sim_kit import PROFILE, Log, session, simulate, tool, turn

from tao.core import Scheduler, SchedulerSettings
from tao.core.events import SessionEnded, ToolExpected, TurnArrived, TurnKind
from tao.core.ids import ReplicaId
from tao.enginemodel import EngineModel
from tao.policies import make_policy
from tao.record.measure import TurnMeasurement
from tao.sim.simulation import Simulation, StuckError
from tao.sim.workload import ClosedLoop, PoissonArrivals, Workload, WorkloadSettings


def times(measured: list[TurnMeasurement]) -> dict[tuple[str, int], tuple[float, float]]:
    return {(m.session_id, m.turn_index): (round(m.arrived_at, 6), round(m.finished_at, 6)) for m in measured}


def test_a_turn_takes_its_prefill_and_its_decode_steps() -> None:
    (only,) = simulate(session("a", turn(100, 11))).measurements
    assert only.arrived_at == 0.0
    assert only.first_token_at == pytest.approx(0.1)
    assert only.finished_at == pytest.approx(0.2)
    assert (only.prompt_tokens, only.cached_tokens, only.output_tokens) == (100, 0, 11)


def test_the_next_turn_arrives_when_the_tool_ends_and_finds_its_prefix() -> None:
    first, second = simulate(session("a", turn(160, 11, tool(5.0)), turn(200, 1))).measurements
    assert second.arrived_at == pytest.approx(first.finished_at + 5.0)
    assert second.tool_ended_at == second.arrived_at
    assert second.cached_tokens == 160  # whole blocks of 160 + 10 computed tokens
    assert second.first_token_at == pytest.approx(second.arrived_at + 0.04)


def test_a_worker_starts_its_next_session_when_its_last_has_ended() -> None:
    at = times(simulate(*(session(n, turn(100, 1)) for n in "abc"), arrivals=ClosedLoop(2)).measurements)
    assert at["a", 0][0] == at["b", 0][0] == 0.0
    assert at["c", 0][0] == at["a", 0][1]


def test_waits_for_humans_are_capped_and_end_no_tool() -> None:
    settings = WorkloadSettings(human_wait_seconds_max=3.0)
    measured = simulate(
        session("a", turn(100, 1, tool(1.0), human=500.0), turn(150, 1)), settings=settings
    ).measurements
    assert measured[1].arrived_at == pytest.approx(measured[0].finished_at + 4.0)
    assert measured[1].tool_ended_at is None


def test_each_session_has_one_tool_delay_drawn_by_seed() -> None:
    turns = turn(100, 1, tool(1.0)), turn(150, 1, tool(1.0)), turn(200, 1)

    def delays(seed: int) -> list[list[float]]:
        settings = WorkloadSettings(tool_delay_seconds=(2.0, 10.0), seed=seed)
        measured = simulate(
            session("a", *turns), session("b", *turns), settings=settings, arrivals=ClosedLoop(2), replicas=2
        ).measurements
        gaps: dict[str, list[float]] = {}
        for one in "ab":
            of_one = [m for m in measured if m.session_id == one]
            gaps[one] = [round(y.arrived_at - x.finished_at - 1.0, 6) for x, y in pairwise(of_one)]
        return [gaps["a"], gaps["b"]]

    (a1, a2), (b1, b2) = delays(1)
    assert a1 == a2
    assert b1 == b2
    assert a1 != b1
    assert all(2.0 <= delay <= 10.0 for delay in (a1, b1))
    assert delays(1) == [[a1, a2], [b1, b2]] != delays(2)


def test_a_sub_agent_starts_after_its_parents_turn_and_ends_the_parents_tool() -> None:
    log = Log()
    simulation = simulate(
        session("p", turn(100, 1, tool(0.5, "Task")), turn(200, 1)),
        session("c", turn(100, 1, tool(7.0)), turn(200, 1), parent="p", after=0),
        session("q", turn(100, 1)),
        observers=[log],
    )
    at = times(simulation.measurements)
    assert at["c", 0][0] == at["p", 0][1]
    assert at["p", 1][0] == at["c", 1][1]  # not half a second after the turn, as recorded
    assert at["q", 0][0] == at["p", 1][1]  # the child held no worker
    arrived = [e for e in log.events if isinstance(e, TurnArrived) and e.session == "c"]
    assert {e.parent for e in arrived} == {"p"}
    assert [e.session for e in log.events if isinstance(e, SessionEnded)] == ["c", "p", "q"]


def test_nobody_waits_for_a_sub_agent_in_the_background() -> None:
    simulation = simulate(
        session("p", turn(100, 1, tool(0.5, "Task", background=True)), turn(200, 1)),
        session("c", turn(100, 1, tool(50.0)), turn(200, 1), parent="p", after=0),
    )
    at = times(simulation.measurements)
    assert at["p", 1][0] == pytest.approx(at["p", 0][1] + 0.5)
    assert at["c", 1][1] > at["p", 1][1]


def test_compaction_starts_the_main_line_afresh_but_for_the_shared_prompt() -> None:
    log = Log()
    settings = WorkloadSettings(system_tokens=64)
    measured = simulate(
        session("a", turn(400, 1), turn(500, 1), turn(200, 1)), settings=settings, observers=[log]
    ).measurements
    assert [m.cached_tokens for m in measured] == [0, 400, 64]
    kinds = [e.kind for e in log.events if isinstance(e, TurnArrived)]
    assert kinds == [TurnKind.MAIN, TurnKind.MAIN, TurnKind.RESET]


def test_sessions_of_one_source_share_their_system_prompt() -> None:
    settings = WorkloadSettings(system_tokens=96)
    sessions = [session(n, turn(200, 1), source=s) for n, s in (("a", "x"), ("b", "x"), ("c", "y"))]
    measured = simulate(*sessions, settings=settings).measurements
    assert [m.cached_tokens for m in measured] == [0, 96, 0]


def test_a_first_prompt_shorter_than_the_system_prompt_shares_as_much_as_both_have() -> None:
    settings = WorkloadSettings(system_tokens=400)
    sessions = [session(n, turn(prompt, 1), source="x") for n, prompt in (("a", 320), ("b", 200), ("c", 480))]
    log = Log()
    measured = simulate(*sessions, settings=settings, observers=[log]).measurements
    assert [m.cached_tokens for m in measured] == [0, 176, 288], "whole blocks of 180 and of 288 tokens"
    arrived = [event.shared_prefix for event in log.events if isinstance(event, TurnArrived)]
    assert [[piece.tokens for piece in pieces] for pieces in arrived] == [[288], [180], [400]]


def test_sessions_of_one_group_share_their_first_prompt_and_nothing_after_it() -> None:
    settings = WorkloadSettings(system_tokens=96)
    turns = (turn(200, 1), turn(300, 1), turn(100, 1))
    group = [
        msgspec.structs.replace(session(name, *turns, source="x"), prompt_group=of)
        for name, of in (("a", "g"), ("b", "g"), ("c", "h"))
    ]
    log = Log()
    simulation = simulate(*group, settings=settings, observers=[log])
    cached = {(m.session_id, m.turn_index): m.cached_tokens for m in simulation.measurements}
    assert [cached[name, 0] for name in "abc"] == [0, 192, 96]
    assert [cached[name, 1] for name in "ab"] == [192, 192]
    arrived = [event for event in log.events if isinstance(event, TurnArrived)]
    tokens = {event.turn: [piece.tokens for piece in event.shared_prefix] for event in arrived}
    assert tokens["a/0"] == tokens["a/1"] == [96, 104]  # type: ignore[index]
    assert tokens["a/2"] == [96], "a context that starts afresh has the system prompt alone"  # type: ignore[index]


def test_one_task_after_two_system_prompts_is_two_beginnings() -> None:
    group = [
        msgspec.structs.replace(session(name, turn(200, 1), source=source), prompt_group="g")
        for name, source in (("a", "x"), ("b", "y"))
    ]
    log = Log()
    simulation = simulate(*group, settings=WorkloadSettings(system_tokens=96), observers=[log])
    assert [m.cached_tokens for m in simulation.measurements] == [0, 0]
    one, other = (event.shared_prefix for event in log.events if isinstance(event, TurnArrived))
    assert [piece.tokens for piece in one] == [piece.tokens for piece in other] == [96, 104]
    assert not set(one) & set(other)


def test_a_turn_that_the_engine_refuses_ends_its_session_and_the_worker_goes_on() -> None:
    simulation = simulate(
        session("a", turn(9_000, 1, tool(1.0)), turn(9_100, 1)), session("b", turn(100, 1)), policy="tao"
    )
    failed, fine = simulation.measurements
    assert (failed.session_id, failed.error, failed.first_token_at) == ("a", "refused by the engine", None)
    assert (fine.session_id, fine.error) == ("b", None)
    assert not simulation.scheduler.view.sessions


def test_a_turn_that_the_scheduler_refuses_ends_its_session() -> None:
    settings = SchedulerSettings(held_turns_max=1, hold_seconds_max=1.0)
    sessions = [session(n, turn(6_500, 100)) for n in "abcde"]
    simulation = simulate(*sessions, policy="tao", arrivals=ClosedLoop(5), scheduler=settings)
    errors = [m.error for m in simulation.measurements]
    assert errors.count("pool-full") == 2
    assert errors.count(None) == 3


def test_arrivals_by_chance_repeat_by_seed_and_do_not_wait_for_ends() -> None:
    sessions = [session(f"s{n}", turn(100, 500)) for n in range(40)]

    def starts(seed: int) -> list[float]:
        arrivals = PoissonArrivals(2.0, seed)
        return sorted(m.arrived_at for m in simulate(*sessions, arrivals=arrivals).measurements)

    assert starts(1) == starts(1) != starts(2)
    assert 10.0 < starts(1)[-1] < 40.0


def test_plans_take_virtual_time_and_are_counted() -> None:
    sessions = [session(f"s{n}", turn(5_000, 50)) for n in range(12)]
    simulation = simulate(*sessions, policy="tao", arrivals=ClosedLoop(12), replicas=2)
    assert simulation.planner.plans > 0
    assert 0.0 < simulation.planner.seconds < 1.0
    assert all(m.error is None for m in simulation.measurements)


class Restless:
    """Asks for another planning point at once, for ever."""

    def __init__(self) -> None:
        self._real = make_policy("round-robin")

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def next_planning_at(self, view: object, at: float) -> float | None:
        return at


def test_a_policy_that_lets_no_time_pass_is_an_error_and_no_hang() -> None:
    simulation = Simulation(
        Scheduler(Restless()),  # type: ignore[arg-type]  # delegates what it does not answer
        {ReplicaId("r"): EngineModel(PROFILE)},
        Workload([session("a", turn(100, 1))], ClosedLoop(1), WorkloadSettings()),
    )
    with pytest.raises(StuckError, match="time does not move"):
        simulation.run()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ClosedLoop(0),
        lambda: PoissonArrivals(0.0),
        lambda: WorkloadSettings(human_wait_seconds_max=-1.0),
        lambda: WorkloadSettings(tool_delay_seconds=(5.0, 1.0)),
    ],
)
def test_impossible_workloads_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"delay|rate|negative|worker"):
        wrong()  # type: ignore[operator]


class Promises(Log):
    """Keeps what the tools said of their returns."""

    watches = frozenset({ToolExpected})


@pytest.mark.parametrize("told", [False, True])
def test_tools_say_when_they_return_if_asked_to_and_repeat_it_while_they_run(told: bool) -> None:
    log = Promises()
    turns = turn(100, 1, tool(50.0)), turn(150, 1, human=9.0), turn(200, 1)
    settings = WorkloadSettings(returns_told=told)
    first = simulate(session("a", *turns), settings=settings, observers=[log]).measurements[0]
    promised = [event for event in log.events if isinstance(event, ToolExpected)]
    end = first.finished_at
    assert [event.at for event in promised] == ([end, end + 20.0, end + 40.0] if told else [])
    assert {event.return_at for event in promised} == ({end + 50.0} if told else set())
