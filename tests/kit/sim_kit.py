"""Small recorded sessions and a small engine, for tests of simulated runs."""

from collections.abc import Sequence

from tao.core import Scheduler, SchedulerSettings
from tao.core.commands import Command
from tao.core.events import Event, SessionEnded, TurnArrived
from tao.core.ids import ReplicaId
from tao.enginemodel import EngineModel, Profile
from tao.policies import make_policy
from tao.sim.simulation import Observer, Simulation
from tao.sim.workload import Arrivals, ClosedLoop, Workload, WorkloadSettings
from tao.traces import TraceSession, TraceTool, TraceTurn

PROFILE = Profile(
    name="small",
    description="10 ms a decode step whatever the batch, 1 ms a prompt token",
    model="none",
    kv_tokens=16_000,
    kv_bytes_per_token=1,
    max_model_tokens=8_000,
    max_running=64,
    max_batched_tokens=8_192,
    decode_base_ms=((1, 10.0),),
    decode_ms_per_context_token=0.0,
    prefill_fixed_ms=0.0,
    prefill_ms_per_token=1.0,
    prefill_ms_per_token_squared=0.0,
)


def tool(seconds: float, name: str = "Bash", *, background: bool = False) -> TraceTool:
    return TraceTool(name=name, duration_seconds=seconds, background=background)


def turn(
    prompt: int, output: int = 10, tool: TraceTool | None = None, human: float | None = None
) -> TraceTurn:
    return TraceTurn(prompt_tokens=prompt, output_tokens=output, tool=tool, user_gap_seconds=human)


def session(
    name: str, *turns: TraceTurn, parent: str | None = None, after: int | None = None, source: str = ""
) -> TraceSession:
    return TraceSession(session_id=name, turns=turns, parent=parent, parent_turn=after, source=source)


class Log:
    """Keeps what it observes."""

    watches = frozenset({TurnArrived, SessionEnded})

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.commands: list[Command] = []
        self.ended_at: float | None = None

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        self.events.append(event)
        self.commands += commands

    def end(self, at: float) -> None:
        self.ended_at = at


def simulate(
    *sessions: TraceSession,
    policy: str = "round-robin",
    replicas: int = 1,
    arrivals: Arrivals | None = None,
    settings: WorkloadSettings | None = None,
    scheduler: SchedulerSettings | None = None,
    profile: Profile = PROFILE,
    observers: Sequence[Observer] = (),
) -> Simulation:
    """Run to the end; everything is to be read from the simulation."""
    simulation = Simulation(
        Scheduler(make_policy(policy), scheduler),
        {ReplicaId(f"r{n}"): EngineModel(profile) for n in range(replicas)},
        Workload(sessions, arrivals or ClosedLoop(1), settings or WorkloadSettings()),
        observers,
    )
    simulation.run()
    return simulation
