"""Options that say which recorded sessions are played and how: one decorator for the commands that play them.

It knows the options and what they become (`Order`, `WorkloadSettings`), nothing of policies, engines or figures.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from tao.cli.span import NumberRange, seconds_range
from tao.sim.run import Order
from tao.sim.workload import WorkloadSettings
from tao.traces.model import SECONDS_MAX, TOKENS_MAX

FITTED_MAX = 1_000_000
GROUP_MAX = 1024

Command = Callable[..., Any]

OPTIONS = (
    click.option("--sessions", type=click.IntRange(1), metavar="N", help="Use the first N sessions only."),
    click.option(
        "--fitted",
        type=click.IntRange(1, FITTED_MAX),
        metavar="N",
        help="Draw N sessions by --seed from distributions fitted to the traces.",
    ),
    click.option(
        "--group-size",
        default=1,
        show_default=True,
        type=click.IntRange(1, GROUP_MAX),
        metavar="N",
        help="Play each session N times in a row, as rollouts of one prompt.",
    ),
    click.option("--shuffle", is_flag=True, help="Put the sessions in an order chosen by --seed first."),
    click.option(
        "--tool-delay",
        callback=seconds_range,
        metavar="MIN:MAX",
        help="One fixed extra delay per session, drawn between these seconds.",
    ),
    click.option(
        "--human-wait-max",
        default=30.0,
        show_default=True,
        type=NumberRange(0, SECONDS_MAX),
        metavar="SECONDS",
        help="Cap on each wait for a human.",
    ),
    click.option(
        "--system-tokens",
        default=0,
        show_default=True,
        type=click.IntRange(0, TOKENS_MAX),
        metavar="TOKENS",
        help="Length of the shared system prompt, where none is recorded.",
    ),
    click.option(
        "--silent-ends", is_flag=True, help="Sessions end without a word: the scheduler has to find out."
    ),
    click.option("--tell-returns", is_flag=True, help="Every tool exposes when it will return: an oracle."),
    click.option(
        "--max-prompt-tokens",
        type=click.IntRange(1),
        metavar="TOKENS",
        help="Cut sessions before a longer turn.  [default: what fits]",
    ),
)


def played_sessions(command: Command) -> Command:
    """Add the options; the command gets them as `order` and `workload`. It must have an option `--seed` itself."""

    @wraps(command)
    def with_sessions(*arguments: Any, **options: Any) -> Any:
        def taken(name: str) -> Any:
            return options.pop(name)

        seed = options["seed"]
        order = Order(
            count_max=taken("sessions"),
            seed=seed if taken("shuffle") else None,
            prompt_tokens_max=taken("max_prompt_tokens"),
            fitted=taken("fitted"),
            fitted_seed=seed,
            group_size=taken("group_size"),
        )
        workload = WorkloadSettings(
            human_wait_seconds_max=taken("human_wait_max"),
            system_tokens=taken("system_tokens"),
            tool_delay_seconds=taken("tool_delay"),
            seed=seed,
            ends_told=not taken("silent_ends"),
            returns_told=taken("tell_returns"),
        )
        return command(*arguments, order=order, workload=workload, **options)

    for option in reversed(OPTIONS):
        with_sessions = option(with_sessions)
    return with_sessions
