"""`tao simulate`: policies on recorded sessions in virtual time, on the command line. Options in, one table out.

What a run is lives in `tao.sim.run`, what its figures mean in `tao.record.summary`; this file only wires and shows.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from tao.cli.played import played_sessions
from tao.cli.runs import (
    SAMPLE,
    check_output,
    make_folder,
    read_sessions,
    repeat_command,
    run_with_progress,
    write_text,
)
from tao.cli.span import NumberRange
from tao.core import SchedulerSettings
from tao.enginemodel import Profile, load_profile, profile_names
from tao.policies import POLICIES, make_policy
from tao.report.bounds import floors_of
from tao.report.terminal import console_for_tables, runs_table
from tao.sim.faults import FaultPlan
from tao.sim.run import UNLIMITED_KV_TOKENS, Order, RunResult, RunSpec
from tao.sim.workload import ClosedLoop, PoissonArrivals, WorkloadSettings
from tao.traces import SkippedLines, TraceError
from tao.traces.model import SECONDS_MAX

CONCURRENCY = 16
CONCURRENCY_MAX = 1_000_000
ARRIVALS_A_SECOND = (1e-6, 1e6)


def number_list(
    kind: type[int] | type[float], least: float, most: float
) -> Callable[..., tuple[int | float, ...] | None]:
    """An option's callback: numbers from least to most, separated by commas; the same one again counts once."""

    def convert(
        ctx: click.Context, param: click.Parameter, value: str | None
    ) -> tuple[int | float, ...] | None:
        if value is None:
            return None
        try:
            numbers = tuple(dict.fromkeys(kind(part) for part in value.split(",") if part.strip()))
        except ValueError:
            numbers = ()
        if not numbers or not all(least <= number <= most for number in numbers):
            raise click.BadParameter(
                f"{value!r}: give numbers from {least:g} to {most:g}, separated by commas", ctx, param
            )
        return numbers

    return convert


@click.command()
@click.argument("more_traces", nargs=-1, metavar="[FILE]...")
@click.option(
    "--trace", "traces", multiple=True, metavar="FILE", help="Trace, or `sample`; more files may follow it."
)
@click.option(
    "--policy",
    "policies",
    default="tao,round-robin",
    show_default=True,
    metavar="NAME[,NAME...]",
    help=f"Policies to compare: {', '.join(POLICIES)}; or your own as package.module:Class.",
)
@click.option(
    "--profile",
    default="qwen3-32b-tp2-h100",
    show_default=True,
    metavar="NAME|FILE.toml",
    help=f"The engine: a profile by name ({', '.join(profile_names())}), or a TOML file of your own.",
)
@click.option(
    "--replicas",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Engines, all alike.",
)
@click.option(
    "--concurrency",
    callback=number_list(int, 1, CONCURRENCY_MAX),
    metavar="W[,W...]",
    help="Workers of the closed loop, one run each.  [default: 16]",
)
@click.option(
    "--arrival-rate",
    callback=number_list(float, *ARRIVALS_A_SECOND),
    metavar="R[,R...]",
    help="Sessions per second by chance (Poisson), not a closed loop.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of order, delays, arrivals and faults.")
@played_sessions
@click.option(
    "--kv-tokens",
    type=click.IntRange(16, UNLIMITED_KV_TOKENS),
    metavar="TOKENS",
    help="KV capacity of each replica, instead of the profile's.",
)
@click.option(
    "--offload-tokens",
    type=click.IntRange(0, UNLIMITED_KV_TOKENS),
    metavar="TOKENS",
    help="Host memory of each replica for what its KV cache evicts.  [default: the profile's]",
)
@click.option(
    "--offload-reload-tokens-per-second",
    type=NumberRange(0, min_open=True),
    metavar="RATE",
    help="How fast it comes back; needs --offload-tokens.  [default: one PCIe 5.0 link]",
)
@click.option(
    "--hold-max",
    default=300.0,
    show_default=True,
    type=NumberRange(0, SECONDS_MAX, min_open=True),
    metavar="SECONDS",
    help="Bound on waiting for admission.",
)
@click.option(
    "--floor",
    is_flag=True,
    help="Add a run with unlimited memory, and how much of the way to it from ThunderAgent (which has to be "
    "among the policies) each policy covers.",
)
@click.option(
    "--faults", is_flag=True, help="Let things go wrong, by --seed: replicas, clients, tools, messages."
)
@click.option(
    "--record-snapshots", metavar="DIR", help="Write every joint decision into this folder, for tao plan."
)
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", help="Processes to use.  [default: all cores]"
)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Spread the runs over this Ray cluster.")
@click.option("--json", "json_path", metavar="OUT", help="Write the figures to this file; - for the output.")
@click.option(
    "--skip-bad-lines", is_flag=True, help="Count bad lines and go on, instead of refusing the trace."
)
def command(  # noqa: PLR0917 - click passes options as they are named
    more_traces: tuple[str, ...],
    traces: tuple[str, ...],
    policies: str,
    profile: str,
    replicas: int,
    concurrency: tuple[int, ...] | None,
    arrival_rate: tuple[float, ...] | None,
    seed: int,
    order: Order,
    workload: WorkloadSettings,
    kv_tokens: int | None,
    offload_tokens: int | None,
    offload_reload_tokens_per_second: float | None,
    hold_max: float,
    floor: bool,
    faults: bool,
    record_snapshots: str | None,
    processes: int | None,
    ray_address: str | None,
    json_path: str | None,
    skip_bad_lines: bool,
) -> None:
    """Simulate policies on recorded sessions: the same scheduler and engine model as live, in virtual time.

    FILE is a trace in any format that tao reads, or the word "sample" for the 40 sessions that come with tao (the
    default). There is one run for each policy and concurrency; runs are spread over the cores and repeat exactly
    by seed. All figures are model seconds.

    Exit code: 0; 1 if a run breaks off or a checker finds something wrong; 2 for bad input; 130 after Ctrl-C.
    """
    skipped = SkippedLines()
    try:
        _check_outputs(json_path, record_snapshots, (*traces, *more_traces))
        base = RunSpec(
            policy="",
            profile=_profile(profile, offload_tokens, offload_reload_tokens_per_second),
            replicas=replicas,
            arrivals=ClosedLoop(1),
            traces=(*traces, *more_traces) or (SAMPLE,),
            kv_tokens=kv_tokens,
            seed=seed,
            order=order,
            workload=workload,
            scheduler=SchedulerSettings(hold_seconds_max=hold_max),
            faults=FaultPlan.drawn(seed, replicas) if faults else None,
            snapshots_dir=record_snapshots,
        )
        sweep = Sweep(
            base,
            policies=_policies(policies),
            loads=tuple(_loads(concurrency, arrival_rate, seed)),
            floor=floor,
        )
        sessions_of = {name: read_sessions(name, skipped if skip_bad_lines else None) for name in base.traces}
        results = run_with_progress(sweep.specs(), sessions_of, processes, ray_address)
    except (ValueError, TraceError) as error:
        raise click.UsageError(str(error)) from error
    _show(sweep, results, skipped, json_path)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The runs of one call: every policy with every load, and one floor for each load if asked for."""

    base: RunSpec
    policies: tuple[str, ...]
    loads: tuple[ClosedLoop | PoissonArrivals, ...]
    floor: bool

    def specs(self) -> list[RunSpec]:
        """Loads in order, within each the policies in order; the floors come last."""
        base = self.base
        specs = [replace(base, policy=name, arrivals=load) for load in self.loads for name in self.policies]
        floors = [replace(base, arrivals=load).floor() for load in self.loads] if self.floor else []
        return specs + floors


def _check_outputs(json_path: str | None, snapshots_dir: str | None, traces: Sequence[str]) -> None:
    check_output(json_path, traces)
    if snapshots_dir is not None:
        make_folder(Path(snapshots_dir))


def _profile(name: str, offload_tokens: int | None, reload_tokens_per_second: float | None) -> Profile:
    if offload_tokens is not None:
        return load_profile(name).with_offload(offload_tokens, reload_tokens_per_second)
    if reload_tokens_per_second is not None:
        raise click.UsageError("--offload-reload-tokens-per-second needs --offload-tokens")
    return load_profile(name)


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.UsageError("--policy names no policy")
    for name in names:
        make_policy(name)  # says what is wrong with the name, before anything runs
    return names


def _loads(
    concurrency: tuple[int, ...] | None, arrival_rate: tuple[float, ...] | None, seed: int
) -> Iterator[ClosedLoop | PoissonArrivals]:
    if concurrency is not None and arrival_rate is not None:
        raise click.UsageError("--concurrency is a closed loop and --arrival-rate is not: give one of them")
    if arrival_rate is not None:
        for rate in arrival_rate:
            yield PoissonArrivals(rate, seed)
        return
    for workers in concurrency or (CONCURRENCY,):
        yield ClosedLoop(workers)


def _show(sweep: Sweep, results: Sequence[RunResult], skipped: SkippedLines, json_path: str | None) -> None:
    runs = results[: len(sweep.policies) * len(sweep.loads)]
    floors = floors_of(runs, results[len(runs) :])
    _say_what_was_left_out(runs, skipped)
    if json_path is not None:
        document: dict[str, object] = {"runs": [run.to_json_dict() for run in runs]}
        if sweep.floor:
            document["floors"] = [floor.to_json_dict() for floor in floors]
        write_text(json_path, json.dumps(document, indent=2, allow_nan=False) + "\n")
    if json_path != "-":
        console_for_tables().print(runs_table(runs, floors))
    unsound = [run for run in results if run.violations]
    for run in unsound:
        for violation in run.violations:
            click.echo(f"{run.spec.policy}: {violation}", err=True)
        click.echo(f"To repeat: {repeat_command(run.spec)}", err=True)
    if unsound:
        sys.exit(1)


def _say_what_was_left_out(runs: Sequence[RunResult], skipped: SkippedLines) -> None:
    first = runs[0]
    if first.sessions_shortened or first.sessions_dropped:
        click.echo(
            f"sessions cut short: {first.sessions_shortened}, left out: {first.sessions_dropped}; longer prompts "
            "than the engine or --max-prompt-tokens takes",
            err=True,
        )
    for bad in skipped.first:
        click.echo(f"skipped {bad}", err=True)
    if skipped.count:
        click.echo(f"bad lines skipped: {skipped.count}", err=True)
