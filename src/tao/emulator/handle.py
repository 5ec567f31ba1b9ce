"""Starting and stopping an emulated replica: for the command line, tests and the demo.

It knows sockets and life cycles, nothing of what is served.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from tao.emulator.server import Routes
from tao.emulator.service import EmulatorConfig, Service

CLOSE_SECONDS = 1.0


class Emulator:
    """A running emulated replica: `url`, `close()`, `kill()`, and its `service`."""

    def __init__(self, service: Service, runner: web.AppRunner, host: str, port: int) -> None:
        self.service = service
        self.host = host
        self.port = port
        self._runner = runner

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def close(self) -> None:
        """End running requests by closing their connections and free the port."""
        await self.kill()

    async def kill(self) -> None:
        """Die as a process would under kill -9: connections are cut in the middle, the port is closed at
        once.
        """
        self.service.close()
        server = self._runner.server
        for connection in server.connections if server is not None else []:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.wait_for(self._runner.cleanup(), CLOSE_SECONDS + 5)


async def start_emulator(config: EmulatorConfig) -> Emulator:
    """Serve `config` in the running event loop. Raises OSError when the address cannot be bound."""
    bound = socket.create_server(
        (config.host, config.port),
        family=socket.AF_INET6 if ":" in config.host else socket.AF_INET,
        backlog=1024,
    )
    service: Service | None = None
    try:
        service = Service(config)
        app = web.Application(client_max_size=config.body_bytes_max)
        app.add_routes(Routes(service).table())
        runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=CLOSE_SECONDS,
        )
        await runner.setup()
        await web.SockSite(runner, bound).start()
    except BaseException:
        if service is not None:
            service.close()
        bound.close()
        raise
    return Emulator(service, runner, config.host, bound.getsockname()[1])
