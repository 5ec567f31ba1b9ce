"""`tao profile`: profiles of engines for the emulator and the simulator. `tao profile fit` measures one.

Wires the measurement to the terminal and the file; what is measured is decided in `tao.inspection`.
"""

import asyncio
import re
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tao.cli.span import NumberRange
from tao.enginemodel import ProfileError, profile_names
from tao.enginemodel.profile import parse_profile
from tao.gateway.sources import AddressError, check_address
from tao.inspection import (
    EngineClient,
    EngineError,
    Fit,
    FitError,
    FitLimits,
    fit_engine,
    profile_text,
)

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@click.group()
def command() -> None:
    """Profiles of engines: hardware and model in numbers, for tao emulate and tao simulate."""


@command.command("list")
def list_profiles() -> None:
    """Name the profiles that come with TAO."""
    for name in profile_names():
        click.echo(name)


@command.command()
@click.argument("url", metavar="URL")
@click.option(
    "--name", default="fitted", show_default=True, metavar="NAME", help="What the profile is called."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it.  [default: NAME.toml]",
)
@click.option("--model", metavar="NAME", help="The model to ask for.  [default: the first that is served]")
@click.option(
    "--api-key",
    envvar="TAO_ENGINE_KEY",
    metavar="KEY",
    help="For engines that want one; also TAO_ENGINE_KEY.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=500),
    default=60_000,
    show_default=True,
    help="At most so many tokens are sent and generated.",
)
@click.option(
    "--seconds",
    type=NumberRange(min=1),
    default=180.0,
    show_default=True,
    help="No request is begun after this time.",
)
@click.option(
    "--batch-max",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="At most so many requests at once.",
)
@click.option(
    "--prompt-max",
    type=click.IntRange(min=128),
    default=8192,
    show_default=True,
    help="No prompt is longer, in tokens.",
)
@click.option(
    "--kv-tokens", type=click.IntRange(min=16), help="KV capacity, where the engine does not tell it."
)
@click.option("--max-running", type=click.IntRange(min=1), help="The engine's max_num_seqs, if you know it.")
@click.option(
    "--max-batched-tokens", type=click.IntRange(min=1), help="Its max_num_batched_tokens, if you know it."
)
@click.option(
    "--speed",
    type=NumberRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="In front of an emulated replica, its --speed.",
)
def fit(  # noqa: PLR0917 - click passes them by name
    url: str,
    name: str,
    out: Path | None,
    model: str | None,
    api_key: str | None,
    tokens: int,
    seconds: float,
    batch_max: int,
    prompt_max: int,
    kv_tokens: int | None,
    max_running: int | None,
    max_batched_tokens: int | None,
    speed: float,
) -> None:
    """Measure an engine and write its profile.

    Sends fresh prompts of several lengths one by one, then batches of short ones at once. The engine should have nothing
    else to do. The bounds are printed before it starts, and the load is planned to fit --tokens.

    \b
    Example: tao profile fit http://127.0.0.1:8000 --name my-gpu
    """
    if not NAME.fullmatch(name):
        raise click.UsageError(f"--name {name!r}: lower-case letters, digits, dots, dashes, at most 64")
    limits = FitLimits(
        tokens_max=tokens,
        seconds_max=seconds,
        batches=tuple(batch for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if batch <= batch_max),
        prompt_tokens=tuple(n for n in (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768) if n <= prompt_max),
    )
    click.echo(
        f"tao profile fit: at most {limits.tokens_max:,} tokens and {limits.seconds_max:g} s, prompts of up to "
        f"{limits.prompt_tokens[-1]:,} tokens, up to {limits.batches[-1]} requests at once"
    )
    try:
        check_address(url)
        found = asyncio.run(_fit(url, limits, api_key=api_key, model=model, kv_tokens=kv_tokens, speed=speed))
        text = profile_text(found, name, running_max=max_running, batched_tokens_max=max_batched_tokens)
        parse_profile(text, name)
    except (AddressError, EngineError, FitError, ProfileError) as error:
        raise click.UsageError(str(error)) from error
    path = out or Path(f"{name}.toml")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from error
    _show(found)
    click.echo(f"written to {path}: tao emulate --profile {path if '/' in str(path) else f'./{path}'}")


async def _fit(
    url: str,
    limits: FitLimits,
    *,
    api_key: str | None,
    model: str | None,
    kv_tokens: int | None,
    speed: float,
) -> Fit:
    async with EngineClient(url, api_key=api_key, timeout_seconds=limits.seconds_max + 60.0) as client:
        return await fit_engine(
            client, limits, model=model, kv_tokens=kv_tokens, seed=time.time_ns(), speed=speed
        )


def _show(found: Fit) -> None:
    table = Table(title=f"{found.model} on {found.engine}", title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    terms = found.prefill
    table.add_row("KV capacity", f"{found.kv_tokens:,} tokens")
    table.add_row("prefill", f"{1000.0 / terms.ms_per_token:,.0f} tokens/s + {terms.fixed_ms:.1f} ms")
    table.add_row("largest error at a measured length", f"{100 * terms.error:.1f} %")
    for batch, ms in found.decode_base_ms:
        table.add_row(f"decode, {batch} at once", f"{ms:.2f} ms a step, {1000.0 * batch / ms:,.0f} tokens/s")
    table.add_row("sent and generated", f"{found.tokens_sent:,} tokens in {found.seconds:.0f} s")
    console = Console()
    console.print(table)
    for remark in found.remarks:
        console.print(f"note: {remark}")
