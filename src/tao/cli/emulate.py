"""`tao emulate`: serve a model of one replica over HTTP, in real time.

Wires the emulator to the command line; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import click
import zmq

from tao.cli.span import NumberRange
from tao.emulator import EmulatorConfig, ScriptError, load_script, start_emulator
from tao.enginemodel import ProfileError, load_profile, profile_names


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any free one."
)
@click.option(
    "--profile",
    "profile_name",
    default="qwen3-32b-tp2-h100",
    show_default=True,
    metavar="NAME|FILE",
    help=f"Hardware and model to emulate: {', '.join(profile_names())}, or a .toml file of the same form.",
)
@click.option(
    "--kv-tokens", type=click.IntRange(min=16), help="KV cache size in tokens.  [default: the profile's]"
)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=NumberRange(min=0, min_open=True, max=1000),
    help="Model seconds per wall-clock second.",
)
@click.option("--model", "model_name", help="Name to serve the model under.  [default: the profile's]")
@click.option("--seed", default=0, show_default=True, help="Seed of drawn answers.")
@click.option(
    "--script",
    "script_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Scripted answers and tool calls (.toml or .json, see docs/emulator.md).",
)
@click.option(
    "--kv-events", metavar="ENDPOINT", help="Publish KV events on this ZMQ endpoint, e.g. tcp://127.0.0.1:*."
)
@click.option("--kv-events-replay", metavar="ENDPOINT", help="Answer replay requests on this ZMQ endpoint.")
@click.option("--kv-events-topic", default="kv-events", show_default=True, help="Topic of the KV events.")
@click.option(
    "--kv-events-echo/--no-kv-events-echo",
    default=True,
    show_default=True,
    help="Whether KV events name the session of a request, as vLLM from 0.32 does.",
)
def command(  # noqa: PLR0917 - click passes them by name
    host: str,
    port: int,
    profile_name: str,
    kv_tokens: int | None,
    speed: float,
    model_name: str | None,
    seed: int,
    script_path: Path | None,
    kv_events: str | None,
    kv_events_replay: str | None,
    kv_events_topic: str,
    *,
    kv_events_echo: bool,
) -> None:
    """Serve a model of one replica over HTTP, in real time.

    It answers like vLLM (chat completions, completions, responses, Anthropic messages, metrics, KV
    events) with the timing, prefix cache and memory of the chosen profile, and needs no GPU.
    """
    try:
        profile = load_profile(profile_name)
        script = None if script_path is None else load_script(script_path)
    except (ProfileError, ScriptError) as error:
        raise click.UsageError(str(error)) from error
    if kv_events_replay is not None and kv_events is None:
        raise click.UsageError("--kv-events-replay needs --kv-events")
    config = EmulatorConfig(
        profile=profile,
        host=host,
        port=port,
        kv_tokens=kv_tokens,
        speed=speed,
        model=model_name,
        seed=seed,
        script=script,
        kv_events=kv_events,
        kv_events_replay=kv_events_replay,
        kv_events_topic=kv_events_topic,
        kv_events_echo=kv_events_echo,
    )
    with contextlib.suppress(KeyboardInterrupt):
        _run(config)


def _run(config: EmulatorConfig) -> None:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # not on Windows
        asyncio.run(_serve(config))
    else:
        uvloop.run(_serve(config))


def _reason(error: OSError) -> str:
    """What went wrong, in the system's words: asyncio puts the address before or behind them."""
    if error.errno is None or error.errno < 0:  # a name that could not be resolved
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def _serve(config: EmulatorConfig) -> None:
    try:
        emulator = await start_emulator(config)
    except OSError as error:
        raise click.UsageError(f"cannot listen on {config.host}:{config.port}: {_reason(error)}") from error
    except zmq.ZMQError as error:
        raise click.UsageError(f"cannot bind the KV event endpoints: {error}") from error
    blocks = emulator.service.model.total_blocks
    click.echo(
        f"tao emulate: {config.profile.name} as {config.served_model} at {emulator.url} "
        f"(speed {config.speed:g}, {blocks * config.profile.block_tokens:,} KV tokens)"
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        await emulator.close()
