"""One turn, from the client's request to the last byte of the engine's answer.

Whose turn is it; tell the core; wait for its decision, keeping a held stream alive; send the request on unchanged; pass
the answer on while observing it; tell the core how it ended. Every path out gives the ticket exactly one ending.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

import structlog

from tao.core.commands import DispatchTurn, Refusal, RefuseTurn
from tao.core.events import SessionEnded, TurnArrived, Usage
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.gateway.config import GatewayConfig
from tao.gateway.driver import Driver, Ticket
from tao.gateway.exchange import Answer, BrokenError, Client, ClientRequest, UnreachableError, Upstream
from tao.gateway.fleet import Fleet
from tao.gateway.outgoing import Outgoing
from tao.gateway.replies import (
    REFUSALS,
    content_of,
    decision_comment,
    decision_headers,
    held_headers,
    refuse,
    session_headers,
)
from tao.gateway.sessionnames import SessionNamer
from tao.gateway.tools import ToolService, core_call
from tao.gateway.wire.beginnings import Beginnings
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.facts import ResponseFacts
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.identity import IdentitySource
from tao.gateway.wire.observers import ResponseObserver, observe_response
from tao.gateway.wire.refusals import Problem, keep_alive
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.sessions import Resolution, SessionIndex
from tao.gateway.wire.tokens import TokenEstimator, output_tokens
from tao.gateway.wire.urgency import read_urgency
from tao.record.livetrace import TraceRecorder

PROGRESS_TOKENS = 64
"""The core hears of a growing output every so many pieces."""

CUT_OFF = "TAO is shutting down, and this request took longer than it waits for"


@dataclass(slots=True)
class _Turn:
    """The turn being served."""

    id: TurnId
    parsed: ParsedRequest
    resolution: Resolution
    client: Client
    ticket: Ticket

    @property
    def session(self) -> SessionId:
        return SessionId(self.resolution.identity.session_id)

    @property
    def dialect(self) -> Dialect:
        return self.parsed.dialect


class TurnService:
    """Serves the requests that are turns. One per gateway. `cutting`: a cancelled turn is cut off by a shutdown."""

    def __init__(
        self,
        config: GatewayConfig,
        driver: Driver,
        fleet: Fleet,
        upstream: Upstream,
        tools: ToolService,
        *,
        namer: SessionNamer,
        recorder: TraceRecorder | None = None,
    ) -> None:
        self._config = config
        self._recorder, self._namer = recorder, namer
        self._tools = tools
        self._driver = driver
        self._fleet, self._upstream = fleet, upstream
        kept_max, idle_seconds = config.limits.identities_max, config.identity.idle_seconds
        self._sessions = SessionIndex(
            sessions_max=kept_max, idle_seconds=idle_seconds, strict=config.identity.strict
        )
        self._tokens = TokenEstimator(sessions_max=kept_max, idle_seconds=idle_seconds)
        self._beginnings = Beginnings(pieces_max=kept_max, idle_seconds=idle_seconds)
        self._turns = 0
        self.cutting = False
        self._log = structlog.get_logger("tao.turn")

    async def serve(self, request: ClientRequest, parsed: ParsedRequest, client: Client) -> None:
        """Answer one turn. Raises `UnknownModelError` and `IdentityConflictError` before anything happened."""
        model = self._fleet.model_of(parsed.model)
        turn = self._arrive(parsed, self._sessions.resolve(parsed, time.monotonic()), model, client)
        try:
            await self._serve(turn, request)
        except asyncio.CancelledError:
            if self.cutting or not turn.ticket.over:
                why = "cut off by the shutdown" if self.cutting else "client left"
                self._log.info(why, session=turn.session, turn=turn.id)
            raise
        finally:
            turn.ticket.close()
            self._sessions.ended(turn.session)
            self._end_session_if_due(turn)

    def forget_session(self, session: str) -> bool:
        """The client released a session; True where it was known."""
        known = SessionId(session) in self._driver.scheduler.view.sessions
        self._driver.feed(SessionEnded(self._driver.clock.now(), SessionId(session)))
        self._tokens.forget(session)
        return self._sessions.forget(session) or known

    def made_by(self, request: ClientRequest) -> ReplicaId | None:
        """The replica that holds the stored response that a path names."""
        replica = self._sessions.replica_of(request.path, Headers(request.headers))
        return ReplicaId(replica) if replica is not None else None

    def expire(self) -> None:
        """Drop what was idle for too long; to be called now and then."""
        now = time.monotonic()
        self._sessions.expire(now)
        self._tokens.expire(now)
        self._beginnings.expire(now)

    # --- arrival and decision ---------------------------------------------------------------------------------------

    def _arrive(self, parsed: ParsedRequest, resolution: Resolution, model: str, client: Client) -> _Turn:
        self._turns += 1
        turn_id = TurnId(f"t{self._turns}")
        identity, chain = resolution.identity, resolution.chain
        text_bytes = chain.text_bytes if chain is not None else len(parsed.raw)
        prompt_tokens = self._tokens.prompt_tokens(identity.session_id, text_bytes)
        if parsed.continues_stored:  # the engine has what the request leaves out
            known = self._driver.scheduler.view.sessions.get(SessionId(identity.session_id))
            prompt_tokens += 0 if known is None else known.footprint_tokens
        if resolution.hints.tool_durations:
            self._tools.measured(identity.session_id, resolution.hints.tool_durations)
        if self._recorder is not None and chain is not None:
            self._recorder.prompt(turn_id, chain.root, chain.root_bytes / max(1, text_bytes))
        event = TurnArrived(
            self._driver.clock.now(),
            turn_id,
            SessionId(identity.session_id),
            prompt_tokens,
            resolution.turn.kind,
            tenant=identity.tenant,
            parent=SessionId(identity.parent) if identity.parent else None,
            pinned=ReplicaId(resolution.pinned_replica) if resolution.pinned_replica else None,
            model=model,
            urgency=read_urgency(parsed.body, self._driver.clock),
            shared_prefix=self._beginnings.nodes(
                parsed,
                chain,
                bytes_per_token=self._tokens.bytes_per_token(identity.session_id),
                prompt_tokens=prompt_tokens,
                now=time.monotonic(),
            ),
        )
        if self._log.is_enabled_for(logging.DEBUG):
            self._log.debug(
                "turn",
                session=identity.session_id,
                turn=turn_id,
                source=identity.source.value,
                kind=resolution.turn.kind.value,
                why=resolution.turn.reason,
                prompt_tokens=event.prompt_tokens,
            )
        for conflict in resolution.conflicts:
            self._log.warning("contradicting session ids", session=identity.session_id, conflict=conflict)
        return _Turn(turn_id, parsed, resolution, client, self._driver.arrive(event))

    async def _serve(self, turn: _Turn, request: ClientRequest) -> None:
        while True:
            outcome = await self._decision(turn)
            if isinstance(outcome, RefuseTurn):
                await self._refuse(turn, outcome.cause)
                return
            if turn.client.started:
                # Its headers are out and name no content coding, so the engine's answer must not have one.
                request = request.for_plain_text()
            named = self._namer.named(request, outcome.replica, turn.parsed, turn.resolution)
            try:
                answer = await self._upstream.send(self._fleet.url(outcome.replica), named)
            except UnreachableError as error:
                self._log.warning(
                    "replica did not answer", replica=outcome.replica, turn=turn.id, error=str(error)
                )
                self._fleet.suspect(outcome.replica)
                turn.ticket.failed(str(error), retryable=True)
                continue
            try:
                await self._pass_on(turn, outcome, answer)
            finally:
                answer.close()
            return

    async def _decision(self, turn: _Turn) -> DispatchTurn | RefuseTurn:
        """Wait for the core. A held streaming client gets its headers and a sign of life after the grace."""
        keep = self._config.keep_alive
        wait_seconds = keep.grace_seconds
        while turn.parsed.stream and not turn.ticket.decided:
            try:
                async with asyncio.timeout(wait_seconds):
                    return await turn.ticket.decision()
            except TimeoutError:
                if not turn.client.started:
                    await turn.client.start(200, held_headers(turn.session))
                await turn.client.send(keep_alive(turn.dialect))
                wait_seconds = keep.period_seconds
        return await turn.ticket.decision()

    async def _refuse(self, turn: _Turn, cause: Refusal) -> None:
        problem, message, retry_after_seconds = REFUSALS[cause]
        self._log.info("refused", session=turn.session, turn=turn.id, cause=cause.value)
        await refuse(
            turn.client,
            turn.dialect,
            problem,
            message,
            retry_after_seconds=retry_after_seconds,
            headers=session_headers(turn.session),
        )

    # --- the answer -------------------------------------------------------------------------------------------------

    async def _pass_on(self, turn: _Turn, outcome: DispatchTurn, answer: Answer) -> None:
        kind, coding = content_of(answer.headers)
        observer = observe_response(
            turn.dialect, status=answer.status, content_type=kind, content_encoding=coding
        )
        if turn.client.started and answer.status >= 400:
            await self._fail_in_stream(turn, answer, observer)
            return
        if not turn.client.started:
            told = decision_headers(turn.session, outcome)
            await turn.client.start(answer.status, (*answer.headers, *told))
        else:
            await turn.client.send(decision_comment(outcome))
        out = Outgoing(turn.client, turn.dialect, answer)
        try:
            await self._pump(turn, answer, observer, out)
        except asyncio.CancelledError:
            if self.cutting:
                turn.ticket.failed(CUT_OFF, retryable=False)
                await out.break_off(CUT_OFF)
            elif (facts := observer.close()).complete:
                # It had its answer and hung up before the engine ended the body, as Codex does.
                self._conclude(turn, outcome, answer, facts)
            raise
        except BrokenError as error:
            self._log.warning("the engine broke off", replica=outcome.replica, turn=turn.id, error=str(error))
            self._fleet.suspect(outcome.replica)
            turn.ticket.failed(str(error), retryable=False)
            await out.break_off(f"the engine broke off: {error}")
            return
        self._conclude(turn, outcome, answer, observer.close())
        await turn.client.finish()

    async def _pump(self, turn: _Turn, answer: Answer, observer: ResponseObserver, out: Outgoing) -> None:
        told = 0
        async for chunk in answer.chunks():
            early = turn.parsed.stream and not told and not answer.complete
            if early:  # what a client waits for leaves before it is looked at
                await out.send(chunk)
                await asyncio.sleep(0)
            observer.feed(chunk)
            seen = observer.output_deltas
            if seen and not told:
                turn.ticket.first_token()
                told = 1
            if seen - told >= PROGRESS_TOKENS:
                turn.ticket.progress(seen)
                told = seen
            if not early:
                await out.send(chunk)

    def _conclude(self, turn: _Turn, outcome: DispatchTurn, answer: Answer, facts: ResponseFacts) -> None:
        if answer.status >= 400 or facts.error is not None:
            cause = facts.error or f"status {answer.status}"
            self._log.info(
                "the engine refused", session=turn.session, turn=turn.id, status=answer.status, error=cause
            )
            turn.ticket.failed(cause, retryable=False)
            return
        usage = self._usage(turn, outcome.replica, facts)
        if usage is None:
            turn.ticket.progress(output_tokens(facts, turn.parsed.max_tokens))
        tools = tuple(map(core_call, facts.tools(tools_declared=bool(turn.parsed.tools))))
        turn.ticket.finished(usage, tools)
        self._tools.acts(turn.session)
        self._sessions.answered(
            turn.session,
            time.monotonic(),
            response_id=facts.response_id,
            call_ids=tuple(call.call_id for call in facts.tool_calls),
            replica=outcome.replica,
        )
        if not self._log.is_enabled_for(logging.INFO):
            return
        self._log.info(
            "turn finished",
            session=turn.session,
            turn=turn.id,
            replica=outcome.replica,
            reason=outcome.reason.value,
            hold_seconds=round(outcome.hold_seconds, 3),
            prompt_tokens=usage and usage.prompt_tokens,
            cached_tokens=usage and usage.cached_tokens,
            output_tokens=usage and usage.output_tokens,
            tools=[tool.name for tool in tools],
        )

    def _usage(self, turn: _Turn, replica: ReplicaId, facts: ResponseFacts) -> Usage | None:
        if facts.usage is None:
            return None
        chain = turn.resolution.chain
        if chain is not None and not turn.parsed.continues_stored:
            self._tokens.learn(turn.session, chain.text_bytes, facts.usage.prompt_tokens, time.monotonic())
        cached_tokens = self._fleet.cached_tokens(replica, turn.dialect, facts.usage.cached_tokens)
        return Usage(facts.usage.prompt_tokens, facts.usage.output_tokens, cached_tokens)

    async def _fail_in_stream(self, turn: _Turn, answer: Answer, observer: ResponseObserver) -> None:
        """The engine refused, but the client of a held stream has its headers already: tell it in the stream."""
        try:
            async for chunk in answer.chunks():
                observer.feed(chunk)
        except BrokenError:
            pass  # the status has said enough
        cause = observer.close().error or f"the engine answered with status {answer.status}"
        turn.ticket.failed(cause, retryable=False)
        await refuse(turn.client, turn.dialect, Problem.UPSTREAM_FAILED, cause)

    def _end_session_if_due(self, turn: _Turn) -> None:
        if turn.resolution.identity.source is IdentitySource.ANONYMOUS or turn.resolution.hints.final:
            self.forget_session(turn.session)
