"""`tao demo`: what scheduling whole sessions is worth, seen in about two minutes on two cores without a GPU.

Two emulated replicas short of memory, the gateway in front, recorded agent sessions replayed through it: once with each
policy, everything started afresh each time. This file only wires and shows.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tao.cli.children import ChildError, running
from tao.cli.span import NumberRange
from tao.policies import UnknownPolicyError, make_policy
from tao.record.summary import RunSummary, summarise
from tao.replay import EndpointError, Replay, ReplayConfig, ReplayProgress
from tao.traces import Selection, read_trace, sample_path, select_sessions

PROFILE = "qwen3-32b-tp2-h100"
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """The scene: two replicas of `kv_tokens` each, `concurrency` agents at a time, `speed` model seconds a second."""

    policies: tuple[str, ...]
    sessions: int
    concurrency: int
    kv_tokens: int
    speed: float


@click.command()
@click.option(
    "--policy",
    "policies",
    default="round-robin,tao",
    show_default=True,
    metavar="NAME,NAME",
    help="Policies to compare, in this order.",
)
@click.option(
    "--sessions", default=32, show_default=True, type=click.IntRange(1, 40), help="Sessions of the sample."
)
@click.option(
    "--concurrency", default=16, show_default=True, type=click.IntRange(1), help="Agents at a time."
)
@click.option(
    "--kv-tokens",
    default=80_000,
    show_default=True,
    type=click.IntRange(16),
    help="KV capacity of each replica.",
)
@click.option(
    "--speed",
    default=25.0,
    show_default=True,
    type=NumberRange(min=0, min_open=True, max=1000),
    help="Model seconds per second.",
)
@click.option("--json", "json_path", metavar="OUT", help="Write the figures of all runs to this file.")
def command(  # noqa: PLR0917 - click passes options as they are named
    policies: str, sessions: int, concurrency: int, kv_tokens: int, speed: float, json_path: str | None
) -> None:
    """Two emulated replicas under memory pressure: the same agents under round-robin, then under tao.

    Needs no GPU and no network. Ctrl-C ends everything that was started.
    """
    config = DemoConfig(_policy_names(policies), sessions, concurrency, kv_tokens, speed)
    chosen = select_sessions(
        read_trace(sample_path()), count_max=sessions, seed=0, prompt_tokens_max=kv_tokens // 2
    )
    if not chosen.sessions:
        raise click.UsageError(f"no session of the sample fits into half of {kv_tokens} KV tokens; give more")
    console = Console()
    console.print(
        f"[bold]TAO demo[/]: {len(chosen.sessions)} recorded agent sessions, {concurrency} at a time, on two emulated "
        f"replicas\n({PROFILE}, {kv_tokens:,} KV tokens each; {speed:g} model seconds a second)\n"
    )
    try:
        summaries = asyncio.run(_demo(config, chosen, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; nothing is left running")
        raise SystemExit(INTERRUPTED) from None
    except (ChildError, EndpointError) as error:
        raise click.ClickException(str(error)) from error
    console.print(comparison(summaries))
    _say_verdict(console, summaries)
    if json_path is not None:
        rows = [{"policy": policy, **summary.to_json_dict()} for policy, summary in summaries]
        Path(json_path).write_text(json.dumps({"runs": rows}, indent=2) + "\n", encoding="utf-8")
    if any(summary.turns_failed for _, summary in summaries):
        raise SystemExit(1)


def _policy_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        try:
            make_policy(name)
        except UnknownPolicyError as error:
            raise click.UsageError(str(error)) from error
    return names


async def _demo(config: DemoConfig, chosen: Selection, console: Console) -> list[tuple[str, RunSummary]]:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the children must not outlive this process
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return [(policy, await _run(config, policy, chosen, console)) for policy in config.policies]


async def _run(config: DemoConfig, policy: str, chosen: Selection, console: Console) -> RunSummary:
    speed = ["--speed", f"{config.speed:g}"]
    emulate = ["emulate", "--port", "0", "--profile", PROFILE, "--kv-tokens", str(config.kv_tokens), *speed]
    async with contextlib.AsyncExitStack() as stack:
        first, second = await asyncio.gather(
            *(stack.enter_async_context(running(f"replica {n}", emulate)) for n in (1, 2))
        )
        serve = ["serve", "--port", "0", "--policy", policy, *speed, "--log-level", "warning"]
        replicas = ["--replica", first.url, "--replica", second.url]
        gateway = await stack.enter_async_context(running("gateway", [*serve, *replicas]))
        console.print(
            f"[bold]{policy}[/]: gateway at {gateway.url}, look at {gateway.url}/state while it runs",
            soft_wrap=True,
        )
        replay = ReplayConfig(gateway.url, concurrency=config.concurrency, speed=config.speed)
        with _progress(console, policy) as show:
            run = Replay(replay, chosen.sessions, show)
            await run.run()
    return summarise(run.measurements, workers=config.concurrency)


@contextlib.contextmanager
def _progress(console: Console, policy: str) -> Iterator["_Show"]:
    with Progress(
        TextColumn(f"{policy:>12}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        yield _Show(bar, bar.add_task(policy, total=None, figures="starting"))


class _Show:
    """Moves the bar."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def __call__(self, progress: ReplayProgress) -> None:
        hits = progress.cached_tokens / progress.prompt_tokens if progress.prompt_tokens else 0.0
        self._bar.update(
            self._task,
            total=progress.turns,
            completed=progress.turns_done,
            figures=f"{progress.sessions_done}/{progress.sessions} sessions · {progress.turns_done}/{progress.turns} "
            f"turns · hits {hits:.0%} · {progress.at_seconds:.0f} model s",
        )


def comparison(summaries: Sequence[tuple[str, RunSummary]]) -> Table:
    """The runs side by side."""
    table = Table(title="Same agents, same replicas (model seconds)")
    table.add_column("")
    for policy, _ in summaries:
        table.add_column(policy, justify="right")
    rows = (
        ("session latency, mean", lambda s: s.latency_seconds.mean, "{:.0f}"),
        ("session latency, p90", lambda s: s.latency_seconds.p90, "{:.0f}"),
        ("time to first token, mean", lambda s: s.ttft_seconds.mean, "{:.2f}"),
        ("tool end to first token, mean", lambda s: s.tool_end_to_first_token_seconds.mean, "{:.2f}"),
        ("hold, mean", lambda s: s.hold_seconds.mean, "{:.2f}"),
        ("hold, longest", lambda s: s.hold_seconds.max, "{:.0f}"),
        ("prefix hit rate", lambda s: s.prefix_hit_rate, "{:.1%}"),
        ("decode tokens/s, all agents busy", lambda s: s.decode_tokens_per_second, "{:.0f}"),
        ("makespan", lambda s: s.makespan_seconds, "{:.0f}"),
        ("turns (failed)", lambda s: f"{s.turns} ({s.turns_failed})", "{}"),
    )
    for name, value, form in rows:
        cells = [value(summary) for _, summary in summaries]
        table.add_row(name, *("-" if cell is None else form.format(cell) for cell in cells))
    return table


def _say_verdict(console: Console, summaries: Sequence[tuple[str, RunSummary]]) -> None:
    if len(summaries) < 2:
        return
    (base_name, base), (name, last) = summaries[0], summaries[-1]
    if base.latency_seconds.mean and last.latency_seconds.mean:
        change = last.latency_seconds.mean / base.latency_seconds.mean - 1
        console.print(
            f"Mean session latency under [bold]{name}[/] is {abs(change):.0%} "
            f"{'lower' if change < 0 else 'higher'} than under {base_name}; "
            f"{last.prefix_hit_rate or 0:.0%} of prompt tokens came from the cache "
            f"instead of {base.prefix_hit_rate or 0:.0%}."
        )
