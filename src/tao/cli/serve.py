"""`tao serve`: the gateway as a process. Options and a file in; a server that drains on SIGTERM out.

This file wires policy, gateway and transport together and owns the process's signals; it decides nothing.
"""

import asyncio
import contextlib
import gc
import signal
from pathlib import Path

import click
import structlog
import uvloop

from tao.cli.discovery import admin_token, replica_sources, token_in_environment
from tao.cli.span import CountOrWord
from tao.core.ports import Policy
from tao.gateway.config import ConfigError, GatewayConfig, load_config
from tao.gateway.driver import Observer
from tao.gateway.gateway import Gateway
from tao.gateway.http.asgi import App
from tao.gateway.http.hops import Hops
from tao.gateway.http.server import serving
from tao.gateway.http.upstream import HttpUpstream
from tao.gateway.learned import kept
from tao.gateway.logs import configure_logs
from tao.gateway.probe import HttpProbe
from tao.gateway.recordedlog import flushed
from tao.gateway.slots import ENGINE
from tao.gateway.sources import in_url
from tao.policies import POLICIES, UnknownPolicyError, make_policy
from tao.policies.prediction import NoPredictionError, choose_predictor, predicting
from tao.policies.returns import PREDICTORS, UnknownPredictorError
from tao.record.livetrace import TraceRecorder
from tao.record.log import LogWriter
from tao.record.snapshots import SnapshotWriter
from tao.traces import TraceError
from tao.traces.writers.native import NativeFile

GRACE_SECONDS = 1.0
"""What is still running after the drain gets this long to end by itself."""


@click.command()
@click.option(
    "--replica", "replicas", multiple=True, metavar="URL", help="A replica's address; repeat for each."
)
@click.option(
    "--replicas-file",
    metavar="FILE",
    help="A TOML or JSON file with a list of replicas, read again whenever it changes.",
)
@click.option(
    "--replicas-dns",
    multiple=True,
    metavar="URL",
    help="Like http://NAME:PORT: every address of the name is a replica; looked up again every few seconds.",
)
@click.option(
    "--replicas-kubernetes",
    multiple=True,
    metavar="NAMESPACE/SERVICE[:PORT]",
    help="Every endpoint of this Kubernetes service is a replica; followed as they come and go.",
)
@click.option(
    "--admin-token-file",
    metavar="FILE",
    help="The token that adds, drains and removes replicas while the gateway runs; also TAO_ADMIN_TOKEN.",
)
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=int, metavar="PORT", help="Port to listen on; 0 for any free one.  [default: 8100]"
)
@click.option(
    "--policy",
    metavar="NAME",
    help="How sessions are scheduled: tao, tao-paper, round-robin, sticky-least-loaded, thunderagent, ... "
    f"A name that does not exist lists all {len(POLICIES)}.  [default: tao]",
)
@click.option(
    "--predictor",
    metavar="NAME",
    help=f"Who predicts when tools return: {', '.join(PREDICTORS)}.  [default: the policy's own]",
)
@click.option(
    "--state-file",
    metavar="FILE",
    help="Where what is learned of tools outlives the process: loaded at the start, saved every minute.",
)
@click.option(
    "--speed",
    type=float,
    metavar="X",
    help="Model seconds per second, the same as the emulated replicas'.  [default: 1]",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file with all settings; options win over it.",
)
@click.option(
    "--capacity-tokens",
    type=int,
    metavar="TOKENS",
    help="KV capacity of a replica that does not tell its own.",
)
@click.option(
    "--replica-slots",
    type=CountOrWord(ENGINE),
    metavar="N|engine",
    help="Sessions admitted to one replica at most: its max_num_seqs; engine: as many as it tells.  "
    "[default: what its capacity holds]",
)
@click.option(
    "--kv-events",
    type=click.Choice(["auto", "off"]),
    help="Whether to follow the KV events of replicas that publish them: what is left of each session.  "
    "[default: auto]",
)
@click.option(
    "--ask-usage",
    is_flag=True,
    default=None,
    help="Ask engines for the token counts of streams whose clients do not, and keep that chunk from the client.",
)
@click.option("--record-log", metavar="FILE", help="Write every event with its commands to this file.")
@click.option(
    "--record-snapshots", metavar="DIR", help="Write every joint decision into this folder, for tao plan."
)
@click.option(
    "--record-trace",
    metavar="FILE",
    help="Write the sessions to a new file as tao simulate and tao replay read them: counts, never text; "
    "gzip if it ends in .gz.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged to standard error.  [default: info]",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    help="For people or for machines.  [default: console]",
)
def command(
    config_path: Path | None,
    **options: object,
) -> None:
    """Stand in front of replicas and schedule agent sessions.

    Point your clients at it as you would at an engine: OpenAI chat completions, completions and
    responses, Anthropic messages. See /state, /metrics, /readyz and /explain/SESSION while it runs.
    The first SIGTERM or Ctrl-C lets running turns finish, a second one ends at once.

    \b
    Example: tao serve --replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002
    """
    try:
        config = load_config(config_path, operators=token_in_environment(), **options)
        policy = _policy(config)
    except (ConfigError, UnknownPolicyError, UnknownPredictorError, NoPredictionError) as error:
        raise click.UsageError(str(error)) from error
    configure_logs(config.log_format, config.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, policy))


def _policy(config: GatewayConfig) -> Policy:
    """The policy with its predictor. Raises what a user may get wrong."""
    policy = make_policy(config.policy)
    if config.predictor is not None:
        choose_predictor(policy, config.predictor)
    if config.state_file is not None:
        predicting(policy, "--state-file")
    return policy


async def _serve(config: GatewayConfig, policy: Policy) -> None:
    """Serve until a signal comes; a first one drains, a second one does not wait."""
    signalled: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.put_nowait, None)
    async with contextlib.AsyncExitStack() as stack:
        hops = Hops()
        upstream, probe = HttpUpstream(config.timeouts, hops), HttpProbe()
        stack.push_async_callback(upstream.close)
        stack.push_async_callback(probe.close)
        try:
            if config.state_file is not None:
                predictor = predicting(policy, "--state-file").predictor
                await stack.enter_async_context(
                    kept(Path(config.state_file), predictor, config.state_period_seconds)
                )
            sources, token = replica_sources(config), admin_token(config)
            gateway = Gateway(
                config,
                policy,
                upstream,
                probe,
                observers=await _observers(config, stack),
                sources=sources,
                admin_token=token,
                recorder=_recorder(config, stack),
            )
            app = App(gateway, config.limits.body_bytes_max, hops)
            stall_seconds = config.timeouts.client_stall_seconds
            at = serving(
                app, config.host, config.port, grace_seconds=GRACE_SECONDS, stall_seconds=stall_seconds
            )
            host, port = await stack.enter_async_context(at)
        except (ConfigError, TraceError) as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(_reason(error)) from error
        except RuntimeError as error:
            raise click.ClickException(str(error)) from error
        spare_the_collector()
        count = len(gateway.fleet)
        click.echo(
            f"tao serve: {policy.name} over {count} {'replica' if count == 1 else 'replicas'} at http://{in_url(host)}:{port}"
        )
        await signalled.get()
        draining, again = loop.create_task(gateway.drain()), loop.create_task(signalled.get())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, again):
            task.cancel()
        gateway.cut_off()


def _reason(error: OSError) -> str:
    """What went wrong in words, without the number that `str` puts before it."""
    told = error.strerror or str(error)
    return f"{error.filename}: {told}" if error.filename is not None else told


def spare_the_collector() -> None:
    """What was made at the start lives to the end, and a request's garbage is not cyclic: look through both less often.

    A tenth to a fifth of the CPU of a short request went into looking (`benchmarks/http_path.py`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def _observers(config: GatewayConfig, stack: contextlib.AsyncExitStack) -> list[Observer]:
    """Who watches the core beside the metrics: recordings that were asked for. Raises `OSError`."""
    observers: list[Observer] = []
    if config.record_log is not None:
        log = LogWriter(Path(config.record_log), config.policy, config.scheduler.settings())
        await stack.enter_async_context(flushed(log))
        observers.append(log.observe)
    if config.record_snapshots is not None:
        observers.append(SnapshotWriter(Path(config.record_snapshots)).observe)
    return observers


def _recorder(config: GatewayConfig, stack: contextlib.AsyncExitStack) -> TraceRecorder | None:
    """The trace of the traffic, if asked for; what is still open at the end is written then. Raises `TraceError`."""
    if config.record_trace is None:
        return None
    file = NativeFile(Path(config.record_trace))
    recorder = TraceRecorder(file)

    def end() -> None:
        try:
            recorder.close()
            file.close()
        except OSError as error:  # a full disk: the shutdown goes on
            structlog.get_logger("tao.record").error("the trace is not complete", error=_reason(error))

    stack.callback(end)
    return recorder
