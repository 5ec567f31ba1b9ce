"""Watching the caches of replicas by their KV events, and telling the core what is left of each session.

`CacheWatch` asks each replica that joins where it publishes, follows the streams, and tells ten times a second what has
changed: the tokens of a session, an emptied cache, a watch that was lost. A replica that publishes nothing costs one
question. What an engine calls a session is the name that the gateway gave it in the header of the request (`named`); whose
the blocks are that nobody named is found in `tao.gateway.attribution`. It must not know what anybody concludes from it.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog
import zmq
import zmq.asyncio

from tao.core.commands import CloseSession, Command, DispatchTurn, RefuseTurn
from tao.core.events import (
    CacheFlushed,
    CacheWatchLost,
    Event,
    PrefixObserved,
    ReplicaJoined,
    ReplicaLost,
    ReplicaRemoved,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnStopped,
    WeightsUpdateBegan,
    WeightsUpdateEnded,
)
from tao.core.ids import ReplicaId, SessionId
from tao.core.session import EvidenceSource
from tao.engines import KvFollower, KvSource, KvSubscriber
from tao.gateway.attribution import Attribution
from tao.gateway.driver import Driver
from tao.gateway.exchange import ClientRequest
from tao.gateway.kvsources import FoundSources, SourceFinder
from tao.gateway.sessionnames import HEADER, SessionNames
from tao.gateway.watchedcache import Watched, counted, described, is_told
from tao.gateway.wire import lenient
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.sessions import Resolution

PERIOD_SECONDS = 0.1
ASK_AGAIN_SECONDS = 5.0


class CacheWatch:
    """All watched replicas. `observe` is to be told of everything that the core handles; `run` is the watch itself."""

    def __init__(self, driver: Driver, finder: SourceFinder, *, blocks_max: int, names_max: int) -> None:
        self.names = SessionNames(names_max)
        self._driver = driver
        self._finder = finder
        self._blocks_max = blocks_max
        self._watched: dict[ReplicaId, Watched] = {}
        self._whose = Attribution(self.names, driver.scheduler.view, self._watched)
        self._context: zmq.asyncio.Context | None = None
        self._telling = False
        self._new_weights_until: float | None = None
        self._log = structlog.get_logger("tao.kv")

    # --- for the turns ----------------------------------------------------------------------------------------------

    def named(
        self, request: ClientRequest, replica: ReplicaId, parsed: ParsedRequest, of: Resolution
    ) -> ClientRequest:
        """The request with the name under which the engine shall report the session's blocks.

        Engines put an id in the body first. Replicas that are not watched get what the client sent.
        """
        watched = self._watched.get(replica)
        if watched is None or not watched.streams:
            return request
        session, kind = SessionId(of.identity.session_id), of.turn.kind
        own_name = lenient.text(parsed.body, "session_id")
        if own_name is not None:
            spoiled = self.names.learn(own_name, session if kind is not TurnKind.SIDE else None)
            if spoiled is not None:
                for each in self._watched.values():
                    each.dirty[spoiled] = None
        headers = [item for item in request.headers if item[0].lower() != HEADER]
        if kind is not TurnKind.SIDE:  # a side turn's blocks are not the session's
            headers.append((HEADER, self.names.given(session).encode()))
        return replace(request, headers=tuple(headers))

    # --- for the driver ---------------------------------------------------------------------------------------------

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Note what an event means for the watch; nothing is told to the core from here."""
        self._note_weights(event)
        match event:
            case ReplicaJoined() | ReplicaLost() | ReplicaRemoved() | CacheFlushed():
                self._replica_changed(event)
            case TurnArrived(session=session):
                self._whose.look_at(session)
            case TurnFinished(turn=turn, usage=usage):
                self._whose.finished(turn, usage, asyncio.get_running_loop().time())
            case TurnFailed(turn=turn) | TurnStopped(turn=turn):
                self._whose.came_to_nothing(turn)
        for command in commands:
            match command:
                case DispatchTurn(turn=turn, session=session, replica=replica):
                    self._whose.dispatched(turn, session, replica, asyncio.get_running_loop().time())
                case RefuseTurn(turn=turn):
                    self._whose.refused(turn)
                case CloseSession(session=session):
                    self._whose.forget(session)

    # --- the watch --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tell the core what has changed, every `PERIOD_SECONDS`, until cancelled."""
        try:
            while True:
                await asyncio.sleep(PERIOD_SECONDS)
                for watched in list(self._watched.values()):
                    try:
                        self._tell(watched)
                    except Exception as error:  # of one replica; the others are watched on
                        self._give_up(watched, error)
        finally:
            await self._close()

    def describe(self) -> list[dict[str, object]]:
        """What is known of each replica's stream, as JSON-ready data."""
        return [described(watched) for watched in self._watched.values()]

    def figures(self) -> Iterator[tuple[ReplicaId, Mapping[str, float]]]:
        """Of each watched replica: counts since the start and sizes, by name, summed over its ranks."""
        for watched in self._watched.values():
            if watched.streams:
                yield watched.replica, counted(watched)

    # --- inside: replicas -------------------------------------------------------------------------------------------

    def _replica_changed(self, event: ReplicaJoined | ReplicaLost | ReplicaRemoved | CacheFlushed) -> None:
        match event:
            case ReplicaJoined(replica=replica):
                if replica not in self._watched:
                    watched = self._watched[replica] = Watched(replica, asyncio.get_running_loop().time())
                    watched.tasks.append(asyncio.get_running_loop().create_task(self._ask(watched)))
            case ReplicaLost(replica=replica) | ReplicaRemoved(replica=replica):
                gone = self._watched.pop(replica, None)
                for task in () if gone is None else gone.tasks:
                    task.cancel()
            case CacheFlushed(replica=replica) if not self._telling and replica in self._watched:
                self._watched[replica].reset()
                self._whose.void(self._watched[replica])

    def _note_weights(self, event: Event) -> None:
        """What was computed with other weights is worth nothing, whether the engine still has it or not."""
        if isinstance(event, WeightsUpdateBegan):
            self._new_weights_until = event.until
        until = self._new_weights_until
        if until is not None and (isinstance(event, WeightsUpdateEnded) or event.at >= until):
            self._new_weights_until = None
            for watched in self._watched.values():
                watched.reset()
                self._whose.void(watched)

    async def _ask(self, watched: Watched) -> None:
        """Find the streams of a replica; again after a while where it did not answer."""
        while True:
            try:
                found: FoundSources = await self._finder.find(watched.replica)
            except Exception as error:
                self._give_up(watched, error)
                return
            watched.why = found.why
            if found.sources:
                self._follow(watched, found.sources)
                return
            if found.final:
                watched.told = found.why
                self._log.info("not watching a cache", replica=watched.replica, why=found.why)
                return
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    def _follow(self, watched: Watched, sources: Sequence[KvSource]) -> None:
        loop = asyncio.get_running_loop()
        self._context = self._context or zmq.asyncio.Context()
        for source in sources:
            stream = KvSubscriber(
                source, KvFollower(source.topic, self._blocks_max, self.names.is_ours), loop.time
            )
            watched.streams.append(stream)
            watched.tasks.append(loop.create_task(self._receive(watched, stream, self._context)))
        self._log.info("watching a cache", replica=watched.replica, endpoints=[s.endpoint for s in sources])

    async def _receive(self, watched: Watched, stream: KvSubscriber, context: zmq.asyncio.Context) -> None:
        try:
            await stream.run(context)
        except Exception as error:
            self._give_up(watched, error)

    def _give_up(self, watched: Watched, error: Exception) -> None:
        """Whatever it is, turns go on: without this evidence."""
        watched.why = f"given up: {type(error).__name__}: {error}"
        watched.streams.clear()
        self._log.error("a cache cannot be watched", replica=watched.replica, exc_info=error)
        self._feed(CacheWatchLost(self._driver.clock.now(), watched.replica))

    async def _close(self) -> None:
        tasks = [task for watched in self._watched.values() for task in watched.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    # --- inside: telling -------------------------------------------------------------------------------------------

    def _tell(self, watched: Watched) -> None:
        now = asyncio.get_running_loop().time()
        for stream in watched.streams:
            stream.follower.listen(now)
        if any(stream.follower.catching_up for stream in watched.streams):
            self._age(watched)
            return
        self._whose.void(watched, watched.voided_at)
        self._whose.recognise(watched, now)
        heard = [stream.follower.take_heard() for stream in watched.streams]
        lost = next((each.lost for each in heard if each.lost is not None), None)
        sessions, watched.dirty = watched.dirty, {}
        for each in heard:
            sessions |= dict.fromkeys(filter(None, map(self.names.session, each.tokens)))
        at = self._driver.clock.now()
        if any(each.cleared_at >= watched.since for each in heard):
            self._log.info("the cache of a replica was emptied", replica=watched.replica)
            self._feed(CacheFlushed(at, watched.replica))
        if lost is not None:
            self._feed(CacheWatchLost(at, watched.replica))
        said = watched.news(lost)
        if said is not None:
            self._log.warning("a cache cannot be watched", replica=watched.replica, why=said)
        for session in sessions:
            if session in watched.unnamed:
                watched.dirty[session] = None  # until its blocks are known, what its turn said counts
            else:
                self._tell_session(watched, session, at)

    def _age(self, watched: Watched) -> None:
        """What was told is a memory while it is not known what was missed, and is told again after that."""
        sessions = self._driver.scheduler.view.sessions
        told = [name for name, session in sessions.items() if is_told(session, watched.replica)]
        watched.dirty |= dict.fromkeys(told)
        if told:
            self._feed(CacheWatchLost(self._driver.clock.now(), watched.replica))

    def _tell_session(self, watched: Watched, session: SessionId, at: float) -> None:
        known = self._driver.scheduler.view.sessions.get(session)
        if known is None:
            return
        before = known.evidence.get(watched.replica)
        tokens = self._tokens(watched, session)
        if tokens is None:
            if is_told(known, watched.replica):
                self._feed(CacheWatchLost(at, watched.replica, session))
            return
        tokens = min(tokens, known.footprint_tokens)
        same = before is not None and (before.tokens, before.source) == (tokens, EvidenceSource.KV_EVENTS)
        if not same and (tokens or before is not None):
            self._feed(PrefixObserved(at, watched.replica, session, tokens))

    def _tokens(self, watched: Watched, session: SessionId) -> int | None:
        if not watched.live or self._new_weights_until is not None:
            return None
        return watched.tokens(self.names.name(session))

    def _feed(self, event: Event) -> None:
        self._telling = True
        try:
            with contextlib.suppress(Exception):  # the driver has told of it; the watch goes on
                self._driver.feed(event)
        finally:
            self._telling = False
