"""The gateway as a whole: which request goes where, how it starts, how it drains.

`Gateway.handle` is all that a transport has to call. Turns go to `TurnService`, tool reports to `ToolService`, operators'
pages to `Admin`, releases end sessions, `/v1/models` is merged over the replicas, everything else under `/v1/` passes
through to one of them.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from tao.core import Scheduler
from tao.core.events import ShutdownStarted
from tao.core.ids import ReplicaId
from tao.core.ports import Policy
from tao.gateway.admin import Admin
from tao.gateway.askusage import asking_usage
from tao.gateway.bookmetrics import BookedSoFar
from tao.gateway.cachewatch import CacheWatch
from tao.gateway.clock import ModelClock
from tao.gateway.config import GatewayConfig
from tao.gateway.creditmetrics import CreditSoFar
from tao.gateway.driver import Driver, NoDecisionError, Observer
from tao.gateway.exchange import BrokenError, Client, ClientRequest, UnreachableError, Upstream, whole_body
from tao.gateway.fleet import Fleet, Probe, UnknownModelError
from tao.gateway.flushing import Flushing
from tao.gateway.kvmetrics import WatchSoFar
from tao.gateway.kvsources import AskedSources, configured_sources
from tao.gateway.member import Member
from tao.gateway.metrics import GatewayMetrics
from tao.gateway.operators import Operators
from tao.gateway.planner import Planner, PlanSolver
from tao.gateway.replies import JSON, answer, refuse
from tao.gateway.roster import Roster
from tao.gateway.sessionnames import NoNames
from tao.gateway.sources import ReplicaSource
from tao.gateway.tools import ToolService
from tao.gateway.turns import CUT_OFF, TurnService
from tao.gateway.wire import lenient
from tao.gateway.wire.dialects import Dialect, dialect_of
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.hints import released_session
from tao.gateway.wire.refusals import Problem
from tao.gateway.wire.requests import MalformedRequestError, parse_request
from tao.gateway.wire.sessions import IdentityConflictError
from tao.planning import PlanWorker
from tao.policies.prediction import prediction_of
from tao.policies.survival import survival_of
from tao.record.livetrace import TraceRecorder

EXPIRY_SECONDS = 30.0
MODELS_BYTES_MAX = 4 << 20


class Gateway:
    """One gateway. `start` before the first request, `drain` and `close` at the end.

    `solver` computes the plans; a process of its own unless one is given. `sources` tell of replicas beside those of the
    configuration; `admin_token` lets operators change them while it runs. `recorder` makes a trace of the traffic.
    """

    def __init__(
        self,
        config: GatewayConfig,
        policy: Policy,
        upstream: Upstream,
        probe: Probe,
        *,
        observers: Sequence[Observer] = (),
        solver: PlanSolver | None = None,
        sources: Sequence[ReplicaSource] = (),
        admin_token: str | None = None,
        recorder: TraceRecorder | None = None,
    ) -> None:
        self.config = config
        clock = ModelClock(config.speed)
        scheduler = Scheduler(policy, config.scheduler.settings())
        planner = Planner(solver or PlanWorker(), config.plan_deadline_seconds)
        prediction = prediction_of(policy)
        calibration = None if prediction is None else prediction.judged()
        metrics = GatewayMetrics(scheduler, planner.figures, calibration)
        self.driver = Driver(scheduler, clock, planner, (metrics.observe, *observers))
        self._tools = ToolService(self.driver, metrics.tool_reported)
        self.driver.watch(self._tools.observe)
        if recorder is not None:
            self.driver.watch(recorder.observe)
        self.fleet = Fleet(config, self.driver, probe, upstream.forget)
        metrics.show(BookedSoFar(self.fleet.reconciliation))
        self._roster = Roster(self.fleet, config.replicas, sources, config.discovery.removal_seconds_max)
        self._operators = Operators(self.driver, self.fleet, self._roster, admin_token)
        self.driver.watch(self._operators.observe)
        self._upstream = upstream
        timeout_seconds = config.health.timeout_seconds
        self._flushing = Flushing(self.driver, self.fleet, upstream, admin_token, timeout_seconds)
        self._watch = self._cache_watch(config, metrics)
        survival = survival_of(policy)
        if survival is not None:
            metrics.show(CreditSoFar(survival))
        namer = self._watch or NoNames()
        self._turns = TurnService(
            config, self.driver, self.fleet, upstream, self._tools, namer=namer, recorder=recorder
        )
        self._admin = Admin(
            self.driver,
            self.fleet,
            metrics,
            self._tools,
            prediction=prediction,
            watch=self._watch,
            survival=survival,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._serving: dict[asyncio.Task[Any], None] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._passed_through = 0
        self._log = structlog.get_logger("tao.gateway")

    def _cache_watch(self, config: GatewayConfig, metrics: GatewayMetrics) -> CacheWatch | None:
        if config.kv_events == "off":
            return None
        known = configured_sources(config.kv_sources)
        finder = AskedSources(self.fleet.url, known, config.health.timeout_seconds)
        watch = CacheWatch(
            self.driver,
            finder,
            blocks_max=config.kv_blocks_max,
            names_max=config.limits.identities_max,
        )
        self.driver.watch(watch.observe)
        metrics.show(WatchSoFar(watch))
        return watch

    async def start(self) -> None:
        """Start the planner, look at every replica once, and go on looking. Replicas may be down."""
        await self.driver.planner.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._roster.follow())]
        await self._roster.first_sets(self.config.health.timeout_seconds)
        await self.fleet.look_once()
        self._tasks += [loop.create_task(self.fleet.watch()), loop.create_task(self._expire_now_and_then())]
        if self._watch is not None:
            self._tasks.append(loop.create_task(self._watch.run()))

    async def drain(self) -> bool:
        """Refuse turns that are held or new, let what runs finish. False when the bound was reached first."""
        seconds_max = self.config.timeouts.drain_seconds
        self._log.info(
            "shutting down: what runs may finish", requests=len(self._serving), seconds_max=seconds_max
        )
        self.driver.feed(ShutdownStarted(self.driver.clock.now()))
        try:
            async with asyncio.timeout(seconds_max):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def cut_off(self) -> None:
        """End what still runs after the drain: each client is told, or sees its answer cut."""
        self._turns.cutting = True
        for task in self._serving:
            task.cancel()

    async def close(self) -> None:
        """Stop everything that runs in the background."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.driver.close()
        await self.driver.planner.close()

    async def handle(self, request: ClientRequest, client: Client) -> None:
        """Answer one request. Cancelled when the client hangs up."""
        dialect = dialect_of(request.method, request.path)
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = None
        self._idle.clear()
        try:
            await self._route(request, client, dialect)
        except MalformedRequestError as error:
            await refuse(client, dialect, Problem.MALFORMED, str(error))
        except IdentityConflictError as error:
            await refuse(client, dialect, Problem.IDENTITY_CONFLICT, str(error))
        except UnknownModelError as error:
            await refuse(client, dialect, Problem.UNKNOWN_MODEL, str(error))
        except NoDecisionError as error:
            await refuse(client, dialect, Problem.INTERNAL, str(error))
        except asyncio.CancelledError:
            if not self._turns.cutting:
                raise
            task.uncancel()
            await _end(client, dialect)
        finally:
            del self._serving[task]
            if not self._serving:
                self._idle.set()

    async def _route(self, request: ClientRequest, client: Client, dialect: Dialect) -> None:
        if dialect.generates:
            parsed = parse_request(request.method, request.path, request.headers, request.body)
            if self.config.ask_usage:
                request, client = asking_usage(request, parsed, client)
            await self._turns.serve(request, parsed, client)
        elif (page := self._admin.page(request.path)) is not None and request.method in {"GET", "HEAD"}:
            await answer(client, page.status, page.content_type, page.body)
        elif self._flushing.serves(request):
            await self._flushing.serve(request, client)
        elif self._operators.serves(request):
            await self._operators.serve(request, client)
        elif (read := self._tools.reader(request)) is not None:
            await self._tools.serve(request, read, client)
        elif request.method == "POST" and (released := self._released(request)) is not None:
            known = self._turns.forget_session(released)
            await answer(client, 200, JSON, msgspec.json.encode({"released": known, "session_id": released}))
        elif request.path == "/v1/models" and request.method == "GET":
            await self._models(request, client)
        elif request.path == "/" and request.method in {"GET", "HEAD"}:
            await answer(client, 200, JSON, msgspec.json.encode({"service": "tao", "see": "/state"}))
        elif _is_for_engines(request.path):
            await self._pass_through(request, client, dialect)
        else:
            await refuse(
                client,
                dialect,
                Problem.NOT_FOUND,
                f"TAO has nothing at {request.path}; see /v1/... and /state",
            )

    def _released(self, request: ClientRequest) -> str | None:
        headers = Headers(request.headers)
        try:
            return released_session(request.method, request.path, request.query, headers, request.body)
        except ValueError as error:
            raise MalformedRequestError(str(error)) from None

    async def _pass_through(self, request: ClientRequest, client: Client, dialect: Dialect) -> None:
        """To one replica after another until one answers, first to the one that holds what the path names.

        Where the request names a model, only to replicas that serve it. Raises `UnknownModelError`.
        """
        self._passed_through += 1
        model = self.fleet.model_of(lenient.text(lenient.object_or_none(request.body) or {}, "model"))
        for member in self._order(self._turns.made_by(request)):
            if not member.serves(model):
                continue
            try:
                reply = await self._upstream.send(member.url, request)
            except UnreachableError:
                self.fleet.suspect(member.id)
                continue
            try:
                await client.start(reply.status, reply.headers)
                async for chunk in reply.chunks():
                    await client.send(chunk)
                await client.finish()
            except BrokenError:
                client.abort()
            finally:
                reply.close()
            return
        await refuse(client, dialect, Problem.UNAVAILABLE, "no replica is up", retry_after_seconds=10.0)

    def _order(self, first: ReplicaId | None) -> list[Member]:
        """All that are up, in turn; `first` before the others, also while it drains."""
        up = self.fleet.up()
        turn = self._passed_through % len(up) if up else 0
        holder = [member for member in self.fleet if member.id == first and member.up]
        return holder + [member for member in up[turn:] + up[:turn] if member.id != first]

    async def _models(self, request: ClientRequest, client: Client) -> None:
        """The models of all replicas, each once, as the first replica that serves it describes it."""
        up = self.fleet.up()
        request = request.for_plain_text()
        pages = await asyncio.gather(*(self._models_of(member.url, request) for member in up))
        merged: dict[str, Mapping[str, Any]] = {}
        for model in (model for page in pages for model in page):
            merged.setdefault(str(model.get("id")), model)
        if not any(pages):
            await refuse(
                client,
                Dialect.PASS_THROUGH,
                Problem.UNAVAILABLE,
                "no replica told its models",
                retry_after_seconds=10.0,
            )
            return
        document = {"object": "list", "data": list(merged.values())}
        await answer(client, 200, JSON, msgspec.json.encode(document))

    async def _models_of(self, url: str, request: ClientRequest) -> list[Mapping[str, Any]]:
        try:
            async with asyncio.timeout(self.config.health.timeout_seconds):
                body = await whole_body(await self._upstream.send(url, request), MODELS_BYTES_MAX)
        except (TimeoutError, UnreachableError, BrokenError):
            return []
        return lenient.objects(lenient.object_or_none(body) or {}, "data")

    async def _expire_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            with contextlib.suppress(Exception):
                self._turns.expire()


def _is_for_engines(path: str) -> bool:
    """Whether a request that TAO has no page for passes through. Raises `MalformedRequestError` for dot segments: whoever
    resolves them on the way takes the path for another one, outside of `/v1/` perhaps.
    """
    if not path.startswith("/v1/"):
        return path in {"/tokenize", "/detokenize"}
    segments = [segment for segment in path.split("/") if segment]
    if not {".", ".."}.isdisjoint(segments):
        raise MalformedRequestError("the path has a segment '.' or '..'; send the path that is meant")
    return segments[1:2] != ["tao"]


async def _end(client: Client, dialect: Dialect) -> None:
    """For a request that a shutdown cuts off: a clear answer where none has begun, else a visible cut."""
    if client.started:
        client.abort()
    else:
        await refuse(client, dialect, Problem.DRAINING, CUT_OFF)
