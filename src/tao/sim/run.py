"""One run as a value: what to simulate in, figures out. The same spec and traces give the same result on any machine.

Specs and results can be pickled, so that runs can be spread over processes (`tao.sim.sweep`). It must not know the
command line, files, or how results are shown.
"""

import contextlib
import gc
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path

import msgspec

from tao.core import Scheduler, SchedulerSettings
from tao.core.ids import ReplicaId
from tao.core.ports import PolicyAnswerError
from tao.enginemodel import EngineModel, Profile
from tao.policies import make_policy
from tao.record.summary import Distribution, RunSummary, summarise
from tao.sim.checkers import InvariantsHold, all_checkers
from tao.sim.faults import FaultPlan
from tao.sim.faulty import FaultySimulation
from tao.sim.fitted import FittedSessions
from tao.sim.recording import SnapshotsKept
from tao.sim.simulation import Observer, OnProgress, Simulation
from tao.sim.tally import Counts, Tally
from tao.sim.workload import ClosedLoop, PoissonArrivals, Workload, WorkloadSettings
from tao.traces import Selection, TraceSession, select_sessions

UNLIMITED_KV_TOKENS = 10**12
"""So much memory that nothing is ever evicted and no session waits."""

FLOOR_POLICY = "sticky-least-loaded"
"""With unlimited memory nothing is to be gained but by staying with one's cache and spreading the load."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which sessions of the traces, in which order: the traces' own or shuffled by `seed`, then the first `count_max`.

    `repeats`: how often the traces are played, each time under new names, where they hold too few sessions. `fitted`:
    draw so many sessions by `fitted_seed` from distributions fitted to the traces, instead of playing theirs.
    `group_size`: each chosen session is played so many times in a row, as rollouts of one prompt.
    """

    count_max: int | None = None
    seed: int | None = None
    prompt_tokens_max: int | None = None
    repeats: int = 1
    fitted: int | None = None
    fitted_seed: int = 0
    group_size: int = 1


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One simulated run. `traces` are names under which the caller knows lists of sessions.

    `prompt_tokens_max` of the order defaults to what the engine can hold; longer sessions are cut before.
    `snapshots_dir`: keep every joint decision there, in a folder named after the run.
    """

    policy: str
    profile: Profile
    replicas: int
    arrivals: ClosedLoop | PoissonArrivals
    traces: tuple[str, ...]
    kv_tokens: int | None = None
    seed: int = 0
    order: Order = field(default_factory=Order)
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    faults: FaultPlan | None = None
    snapshots_dir: str | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"a run needs at least 1 replica, not {self.replicas}")
        if self.kv_tokens is not None and self.kv_tokens < self.profile.block_tokens:
            raise ValueError(
                f"{self.kv_tokens} KV tokens are less than one block of {self.profile.block_tokens}"
            )

    @property
    def concurrency(self) -> int | None:
        """Workers of the closed loop; None when sessions arrive by chance."""
        return self.arrivals.workers if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def name(self) -> str:
        """A name for files of this run, unlike that of any other in one sweep."""
        load = (
            f"w{self.arrivals.workers}"
            if isinstance(self.arrivals, ClosedLoop)
            else f"r{self.arrivals.rate_per_second:g}"
        )
        return f"{self.policy.replace(':', '-')}-{load}-seed{self.seed}"

    @property
    def replica_kv_tokens(self) -> int:
        """KV capacity of one replica."""
        return self.profile.kv_tokens if self.kv_tokens is None else self.kv_tokens

    def floor(self) -> "RunSpec":
        """The same load on replicas with unlimited memory: what no policy is expected to beat."""
        kept = min(self.profile.max_model_tokens, self.replica_kv_tokens)
        order = replace(self.order, prompt_tokens_max=self.order.prompt_tokens_max or kept)
        unlimited = replace(self, policy=FLOOR_POLICY, kv_tokens=UNLIMITED_KV_TOKENS, order=order)
        return replace(unlimited, faults=None, snapshots_dir=None)


@dataclass(frozen=True, slots=True)
class Planning:
    """All planning of a run, in virtual seconds."""

    plans: int
    seconds: float
    fallbacks: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run gave. `violations`: what the checkers found, empty in a sound run. `faults`: how often each kind came."""

    spec: RunSpec
    summary: RunSummary
    counts: Counts
    planner: Planning
    violations: tuple[str, ...] = ()
    faults: Mapping[str, int] = field(default_factory=dict)
    sessions_shortened: int = 0
    sessions_dropped: int = 0
    reloaded_tokens: int = 0

    def to_json_dict(self) -> dict[str, object]:
        """The row of `tao simulate --json`: a stable interface, see docs/simulator.md."""
        spec, summary = self.spec, self.summary
        arrivals = spec.arrivals
        return {
            "policy": spec.policy,
            "concurrency": spec.concurrency,
            "arrival_rate_per_second": (
                arrivals.rate_per_second if isinstance(arrivals, PoissonArrivals) else None
            ),
            "replicas": spec.replicas,
            "profile": spec.profile.name,
            "kv_tokens": spec.replica_kv_tokens,
            "traces": list(spec.traces),
            "seed": spec.seed,
            "sessions": summary.sessions,
            "sessions_failed": summary.sessions_failed,
            "turns": summary.turns,
            "turns_failed": summary.turns_failed,
            "latency_seconds": _percentiles(summary.latency_seconds),
            "ttft_seconds": _percentiles(summary.ttft_seconds),
            "tool_end_to_first_token_seconds": _percentiles(summary.tool_end_to_first_token_seconds),
            "hold_seconds": _percentiles(summary.hold_seconds),
            "decode_tokens_per_second": summary.decode_tokens_per_second,
            "decode_tokens_per_second_overall": summary.decode_tokens_per_second_overall,
            "makespan_seconds": summary.makespan_seconds,
            "prefix_hit_rate": summary.prefix_hit_rate,
            **asdict(self.counts),
            "planner": asdict(self.planner),
            "errors": summary.errors,
            "sessions_shortened": self.sessions_shortened,
            "sessions_dropped": self.sessions_dropped,
            "faults": dict(sorted(self.faults.items())),
            **self._offload(),
        }

    def _offload(self) -> dict[str, object]:
        """Figures of the host tier, where the profile has one."""
        profile = self.spec.profile
        if not profile.offload_capacity_tokens:
            return {}
        return {
            "offload_tokens": profile.offload_capacity_tokens,
            "offload_reload_tokens_per_second": profile.offload_reload_tokens_per_second,
            "reloaded_tokens": self.reloaded_tokens,
        }


class NoSessionsError(ValueError):
    """Nothing is left to simulate."""


class RunFailedError(RuntimeError):
    """A run broke off by a defect; `spec` says which. The cause is in the message."""

    def __init__(self, spec: RunSpec, cause: str) -> None:
        arrivals = spec.arrivals
        load = (
            f"{arrivals.workers} workers"
            if isinstance(arrivals, ClosedLoop)
            else f"{arrivals.rate_per_second:g} sessions/s"
        )
        super().__init__(f"{spec.policy}, {load}, seed {spec.seed}: {cause}")
        self.spec = spec
        self.cause = cause

    def __reduce__(self) -> tuple[type["RunFailedError"], tuple[RunSpec, str]]:
        return RunFailedError, (self.spec, self.cause)


def run(
    spec: RunSpec, traces: Mapping[str, Sequence[TraceSession]], on_progress: OnProgress | None = None
) -> RunResult:
    """Simulate. Raises NoSessionsError, and ValueError for an unknown policy or sessions that share an id; RunFailedError
    where the run breaks off by a defect of the core or a policy; OSError where snapshots cannot be written.
    """
    chosen = _choose(spec, traces)
    scheduler = Scheduler(make_policy(spec.policy), spec.scheduler)
    workload = Workload(chosen.sessions, spec.arrivals, spec.workload)
    tally, checkers = Tally(), all_checkers(spec.scheduler)
    kept = () if spec.snapshots_dir is None else (SnapshotsKept(Path(spec.snapshots_dir), spec.name),)
    simulation = _simulation(spec, scheduler, workload, (tally, *checkers, *kept), on_progress)
    with _collecting_rarely(), _defects_told(spec):
        measurements = simulation.run()
    planner = simulation.planner
    return RunResult(
        spec=spec,
        summary=summarise(measurements, workers=spec.concurrency or workload.sessions),
        counts=tally.counts,
        planner=Planning(planner.plans, planner.seconds, planner.fallbacks),
        violations=tuple(text for checker in checkers for text in checker.violations),
        faults=simulation.told if isinstance(simulation, FaultySimulation) else {},
        sessions_shortened=chosen.sessions_shortened,
        sessions_dropped=chosen.sessions_dropped,
        reloaded_tokens=simulation.reloaded_tokens,
    )


def _simulation(
    spec: RunSpec,
    scheduler: Scheduler,
    workload: Workload,
    observers: Sequence[Observer],
    on_progress: OnProgress | None,
) -> Simulation:
    plan = spec.faults
    profiles = [
        spec.profile if plan is None else plan.profile_of(n, spec.profile) for n in range(spec.replicas)
    ]
    engines = {
        ReplicaId(f"replica-{n}"): EngineModel(profile, spec.kv_tokens) for n, profile in enumerate(profiles)
    }
    if plan is None:
        return Simulation(scheduler, engines, workload, observers, on_progress)
    observers = (*observers, InvariantsHold(scheduler))
    return FaultySimulation(scheduler, engines, workload, observers, on_progress, plan=plan, seed=spec.seed)


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """A run makes and drops millions of objects, hardly any of them in cycles: look for cycles seldom meanwhile."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextlib.contextmanager
def _defects_told(spec: RunSpec) -> Iterator[None]:
    """Whatever a policy raises, the end of the program included, breaks off its run; the message says where."""
    try:
        yield
    except OSError:
        raise
    except PolicyAnswerError as error:  # says all there is to say: it came up in no line of the policy
        raise RunFailedError(spec, str(error)) from error
    except (Exception, SystemExit) as error:
        raise RunFailedError(spec, f"{type(error).__name__}: {error} (in {_where(error)})") from error


def _where(error: BaseException) -> str:
    """The last line of somebody's own policy, if the defect came up in one, else of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    frame = next((frame for frame in reversed(frames) if not frame.filename.startswith(ours)), frames[-1])
    return f"{frame.name}, {frame.filename}:{frame.lineno}"


def _choose(spec: RunSpec, traces: Mapping[str, Sequence[TraceSession]]) -> Selection:
    order = spec.order
    engine_max = min(spec.profile.max_model_tokens, spec.replica_kv_tokens)
    recorded = [session for name in spec.traces for session in traces[name]]
    if not recorded:
        raise NoSessionsError(f"there is no session in {', '.join(spec.traces)}: nothing is left to simulate")
    if order.fitted is not None:
        recorded = FittedSessions(recorded).draw(order.fitted, order.fitted_seed)
    prompt_tokens_max = order.prompt_tokens_max or engine_max
    chosen = select_sessions(
        (again(session, time) if time else session for time in range(order.repeats) for session in recorded),
        count_max=order.count_max,
        seed=order.seed,
        prompt_tokens_max=prompt_tokens_max,
    )
    if not chosen.sessions:
        raise NoSessionsError(
            f"nothing is left to simulate: the first turn of each session of {', '.join(spec.traces)} takes more than "
            f"{prompt_tokens_max} tokens"
        )
    if order.group_size > 1:
        rollouts = (rollouts_of(session, order.group_size) for session in chosen.sessions)
        return replace(chosen, sessions=tuple(chain.from_iterable(rollouts)))
    return chosen


def rollouts_of(session: TraceSession, count: int) -> Iterator[TraceSession]:
    """The session `count` times under new names: rollouts of one prompt, as RL trainers sample them."""
    group = session.prompt_group or session.session_id
    for time in range(count):
        yield msgspec.structs.replace(again(session, time), prompt_group=group)


def again(session: TraceSession, time: int) -> TraceSession:
    """The same session under another name, with its parent under another name too."""
    parent = None if session.parent is None else f"{session.parent}~{time}"
    return msgspec.structs.replace(session, session_id=f"{session.session_id}~{time}", parent=parent)


def _percentiles(values: Distribution) -> dict[str, float | None]:
    return {"mean": values.mean, "p50": values.p50, "p90": values.p90, "p99": values.p99, "max": values.max}
