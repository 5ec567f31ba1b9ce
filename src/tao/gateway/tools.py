"""The tools API: what clients report of their running tools becomes events of the core.

A session's tools are over when each that its response asked for, and each that was reported to start, was reported to have
ended. A promise holds for the session once every running tool has made one: it returns with the last. Reports are scoped by
the caller's API key like every session id, and repeating one changes nothing. Nothing is scheduled here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import msgspec

from tao.core.commands import CloseSession, Command
from tao.core.events import Event, ToolBegan, ToolCall, ToolExpected, ToolFinished, ToolsMeasured
from tao.core.ids import SessionId
from tao.core.phases import Acting, Away
from tao.core.session import Session
from tao.gateway.callbook import Call, CallBook, ConflictError, TooManyCallsError, UnknownCallError
from tao.gateway.driver import Driver
from tao.gateway.exchange import Client, ClientRequest
from tao.gateway.replies import JSON, answer, error_document, wrong_method
from tao.gateway.toolreports import (
    ReportKind,
    ToolReport,
    dynamo_record,
    stall_event,
    tool_event,
)
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.identity import scoped, tenant_of
from tao.gateway.wire.requests import MalformedRequestError
from tao.gateway.wire.toolcalls import ToolObservation

BODY_BYTES_MAX = 64 * 1024
SESSION_HEADERS = ("x-session-id", "x-dynamo-session-id", "x-litellm-session-id", "x-claude-code-session-id")

Reader = Callable[[bytes, str], ToolReport]
PATHS: dict[str, Reader] = {
    "/v1/tao/tools": lambda body, session: tool_event(body),  # noqa: ARG005 - it always names its session
    "/v1/tokencake/events": stall_event,
    "/v1/dynamo/tool-events": dynamo_record,
}


class UnknownSessionError(LookupError):
    """No open session of this caller has the id; the message goes to the client (404)."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    kind: str


REFUSALS: dict[type[Exception], _Refusal] = {
    MalformedRequestError: _Refusal(400, "malformed_event"),
    UnknownSessionError: _Refusal(404, "unknown_session"),
    UnknownCallError: _Refusal(404, "unknown_call"),
    ConflictError: _Refusal(409, "conflicting_event"),
    TooManyCallsError: _Refusal(429, "too_many_calls"),
}

Counted = Callable[[str, str], None]


class ToolService:
    """Answers tool reports. `counted` is told the event and the outcome of each."""

    def __init__(self, driver: Driver, counted: Counted) -> None:
        self._driver = driver
        self._counted = counted
        self._book = CallBook()

    def reader(self, request: ClientRequest) -> Reader | None:
        """How to read the request; None where it is no tool report."""
        return PATHS.get(request.path)

    async def serve(self, request: ClientRequest, read: Reader, client: Client) -> None:
        """Answer one report."""
        if request.method != "POST":
            status, document = wrong_method(request)
            await answer(client, status, JSON, msgspec.json.encode(document))
            return
        headers = Headers(request.headers)
        event = "unread"
        try:
            if len(request.body) > BODY_BYTES_MAX:
                raise MalformedRequestError(f"the event has more than {BODY_BYTES_MAX} bytes")
            named = next((value for name in SESSION_HEADERS if (value := headers.get(name))), "")
            report = read(request.body, named)
            event = report.kind.value
            told = self.report(report, tenant_of(headers))
        except tuple(REFUSALS) as error:
            refusal = REFUSALS[type(error)]
            self._counted(event, refusal.kind)
            document = error_document(refusal.kind, str(error.args[0]))
            await answer(client, refusal.status, JSON, msgspec.json.encode(document))
            return
        self._counted(event, str(told["outcome"]))
        await answer(client, 200, JSON, msgspec.json.encode(told))

    def report(self, report: ToolReport, tenant: str) -> dict[str, object]:
        """Take a report in and tell the core; the answer's document. Raises the keys of `REFUSALS`."""
        session = self._session(report.session, tenant)
        report = _in_model_seconds(report, self._driver.clock.speed)
        phase = _phase_of(session)
        calls = {call.id: call for call in self._book.all_of(session.id)}
        unheard = report.call_id not in calls and not report.must_be_known
        if phase is None and unheard and report.kind is not ReportKind.START:
            return self._told(session, report, "late")
        call = self._book.note(session.id, report, phase, self._driver.clock.now())
        if call is None:
            return self._told(session, report, "repeated")
        if call.phase != phase:
            return self._told(session, report, "late")
        if phase is None:
            return self._told(session, report, "noted")
        if report.kind is ReportKind.END:
            self._measure(session, call, report)
        self._apply(session.id, promised=report.kind is not ReportKind.END)
        return self._told(session, report, "applied")

    def acts(self, session: str) -> None:
        """A turn of the session has ended: what was reported early is applied if its tools run now."""
        if self._book.all_of(session):
            self._apply(SessionId(session), promised=True)

    def measured(self, session: str, durations: Sequence[tuple[str, float]]) -> None:
        """The next turn of the session brings its tools' durations (wall seconds); before the turn is fed.

        Calls whose ends were reported one by one have been told already.
        """
        known = self._driver.scheduler.view.sessions.get(SessionId(session))
        if known is None or len(_tools_of(known)) < 2:
            return
        phase = _phase_of(known)
        if phase is not None and any(not call.running for call in self._book.of_phase(known.id, phase)):
            return
        scaled = tuple((name, seconds * self._driver.clock.speed) for name, seconds in durations)
        self._driver.feed(ToolsMeasured(self._driver.clock.now(), known.id, scaled))

    def observe(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002 - a driver's observer
        """Forget the calls of closed sessions."""
        for command in commands:
            if isinstance(command, CloseSession):
                self._book.forget(command.session)

    def explain(self, session: SessionId) -> list[dict[str, object]]:
        """The session's reported calls with their times (model seconds), oldest first, for `/explain`."""
        now = self._driver.clock.now()
        return [
            {
                "call_id": call.id,
                "tool": call.tool.name,
                "command_head": call.tool.command_head or "",
                "state": "running" if call.running else "ended",
                "began_at": call.began_at,
                "ended_at": call.ended_at,
                "returns_in_seconds": call.expected_at - now
                if call.running and call.expected_at is not None
                else None,
            }
            for call in self._book.all_of(session)
        ]

    # --- what the core is told --------------------------------------------------------------------------------------

    def _apply(self, session_id: SessionId, *, promised: bool) -> None:
        """Tell the core what the calls of the present tool phase mean together."""
        session = self._driver.scheduler.view.sessions.get(session_id)
        phase = None if session is None else _phase_of(session)
        if session is None or phase is None:
            return
        calls = list(self._book.of_phase(session_id, phase))
        if not calls:
            return
        calls = self._name(session, calls)
        running = [call for call in calls if call.running]
        all_seen = len(calls) >= len(_tools_of(session))
        now = self._driver.clock.now()
        if _is_over(session) or not all_seen:
            return
        if not running:
            self._driver.feed(ToolFinished(now, session_id))
            return
        returns = [call.expected_at for call in running if call.expected_at is not None]
        if promised and len(returns) == len(running):
            self._driver.feed(ToolExpected(now, session_id, max(returns)))

    def _name(self, session: Session, calls: list[Call]) -> list[Call]:
        """Tell the core of tools that no response named; the calls of the phase that is then the present one."""
        by_client = len(_tools_of(session)) == sum(call.told for call in calls)
        fresh = [c for c in calls if not c.told and (_is_new(session, c) if _is_over(session) else by_client)]
        for call in fresh:
            self._driver.feed(ToolBegan(self._driver.clock.now(), session.id, core_call(call.tool)))
            call.told = True
            call.phase = _phase_of(session)
        now_phase = _phase_of(session)
        return [call for call in calls if call.phase == now_phase]

    def _measure(self, session: Session, call: Call, report: ToolReport) -> None:
        seconds = report.duration_seconds
        if seconds is None and call.began_at is not None and call.ended_at is not None:
            seconds = call.ended_at - call.began_at
        if seconds is not None and len(_tools_of(session)) > 1:
            measured = ((call.tool.name, seconds),)
            self._driver.feed(ToolsMeasured(self._driver.clock.now(), session.id, measured))

    # --- small things -----------------------------------------------------------------------------------------------

    def _session(self, named: str, tenant: str) -> Session:
        """By the client's own id, or by the full one that an answer's `x-tao-session` told."""
        known = self._driver.scheduler.view.sessions
        for candidate in (scoped(tenant, named), unquote(named) if named.startswith(f"{tenant}/") else ""):
            session = known.get(SessionId(candidate))
            if session is not None:
                return session
        raise UnknownSessionError(
            f"no open session of this API key is named {named!r}: send the id that its turns carry, with the same "
            "credential, after its first turn has arrived"
        )

    def _told(self, session: Session, report: ToolReport, outcome: str) -> dict[str, object]:
        phase = _phase_of(session)
        calls = () if phase is None else self._book.of_phase(session.id, phase)
        return {
            "session_id": session.id,
            "call_id": report.call_id,
            "outcome": outcome,
            "tools_running": [call.tool.name for call in calls if call.running],
            "session_over": _is_over(session),
        }


def _phase_of(session: Session) -> float | None:
    """When the session's present tool phase began; None where no tool runs."""
    match session.phase:
        case Acting(since=since):
            return since
        case Away(acting_since=since):
            return since
    return None


def _tools_of(session: Session) -> tuple[ToolCall, ...]:
    return session.phase.tools if isinstance(session.phase, Acting | Away) else ()


def _is_over(session: Session) -> bool:
    return isinstance(session.phase, Acting) and session.phase.finished_at is not None


def _is_new(session: Session, call: Call) -> bool:
    """Whether the call began after all others had ended: the session acts anew."""
    phase = session.phase
    if not isinstance(phase, Acting) or phase.finished_at is None or call.began_at is None:
        return False
    return call.running and call.began_at >= phase.finished_at


def core_call(tool: ToolObservation) -> ToolCall:
    """What the core is told of a tool."""
    return ToolCall(
        tool.name, tool.command_head or "", tool.sleep_seconds, tool.timeout_seconds, tool.background
    )


def _in_model_seconds(report: ToolReport, speed: float) -> ToolReport:
    def scaled(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * speed

    return replace(
        report,
        remaining_seconds=scaled(report.remaining_seconds),
        duration_seconds=scaled(report.duration_seconds),
    )
