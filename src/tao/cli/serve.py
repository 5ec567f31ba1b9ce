"""`tao serve`: the gateway as a process. Options and a file in; a server that drains on SIGTERM out.

This file wires policy, gateway and transport together and owns the process's signals; it decides nothing.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import uvicorn

from tao.core.ports import Policy
from tao.gateway.config import ConfigError, GatewayConfig, load_config
from tao.gateway.gateway import Gateway
from tao.gateway.http.asgi import App
from tao.gateway.http.upstream import HttpUpstream
from tao.gateway.logs import configure_logs
from tao.gateway.probe import HttpProbe
from tao.policies import POLICIES, UnknownPolicyError, make_policy


@click.command()
@click.option(
    "--replica", "replicas", multiple=True, metavar="URL", help="A replica's address; repeat for each."
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 for any free one.  [default: 8100]")
@click.option("--policy", metavar="NAME", help=f"One of: {', '.join(POLICIES)}.  [default: tao]")
@click.option("--speed", type=float, help="Model seconds per second; for emulated replicas.  [default: 1]")
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="A TOML file with all settings."
)
@click.option("--capacity-tokens", type=int, help="KV capacity where an engine does not tell its own.")
@click.option("--record-log", metavar="FILE", help="Write every event with its commands to this file.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="[default: console]")
def command(
    config_path: Path | None,
    **options: object,
) -> None:
    """Stand in front of replicas and schedule agent sessions.

    Point your clients at it as you would at the engine: OpenAI chat completions, completions and responses, Anthropic
    messages. State at /state, metrics at /metrics, reasons at /explain/SESSION.

    \b
    Example: tao serve --replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002
    """
    try:
        config = load_config(config_path, **options)
        policy = make_policy(config.policy)
    except (ConfigError, UnknownPolicyError) as error:
        raise click.UsageError(str(error)) from error
    configure_logs(config.log_format, config.log_level)
    try:
        listener = _listen(config)
    except OSError as error:
        raise click.UsageError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from error
    uvicorn_loop = uvicorn.Config(app=lambda: None).get_loop_factory()
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvicorn_loop) as runner:
        runner.run(_serve(config, policy, listener))


class _Server(uvicorn.Server):
    """Signals are ours, since a shutdown drains first; and it says when it listens."""

    ready_line = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            click.echo(self.ready_line)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(config: GatewayConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    return socket.create_server((config.host, config.port), family=family, backlog=2048)


async def _serve(config: GatewayConfig, policy: Policy, listener: socket.socket) -> None:
    upstream, probe = HttpUpstream(config.timeouts), HttpProbe()
    gateway = Gateway(config, policy, upstream, probe)
    server = _Server(
        uvicorn.Config(
            App(gateway, config.limits.body_bytes_max),
            log_level="critical",  # a broken-off answer is no crash; our own log tells it
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="on",
            timeout_keep_alive=75,
        )
    )
    draining: list[asyncio.Task[None]] = []

    def begin_drain() -> None:
        if draining:
            server.force_exit = True
            return
        draining.append(asyncio.get_running_loop().create_task(_drain(gateway, server)))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, begin_drain)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    server.ready_line = (
        f"tao serve: {policy.name} over {len(config.replicas)} replicas at http://{shown}:{port}"
    )
    try:
        await server.serve([listener])
    finally:
        await upstream.close()
        await probe.close()


async def _drain(gateway: Gateway, server: uvicorn.Server) -> None:
    await gateway.drain()
    server.should_exit = True
