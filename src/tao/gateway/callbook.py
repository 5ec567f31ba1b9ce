"""The tool calls that clients report, by session: which run, which ended, and in which tool phase of their session.

Bounded in every direction: calls of a session, calls in all. A call belongs to the tool phase in which it was first
reported, named by the time at which that phase began; one that is reported before its turn has quite ended belongs to the
next phase. Nothing here decides what the core is told. It must not know HTTP or the core.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tao.gateway.toolreports import SECONDS_MAX, ReportKind, ToolReport
from tao.gateway.wire.toolcalls import ToolObservation
from tao.traces.shell import read_command

CALLS_OF_SESSION_MAX = 64
CALLS_MAX = 65_536


class ConflictError(ValueError):
    """The report contradicts an earlier one of the same call; the message goes to the client (409)."""


class UnknownCallError(LookupError):
    """Nothing was reported of this call before; the message goes to the client (404)."""


class TooManyCallsError(Exception):
    """The session has as many calls open as it may; the message goes to the client (429)."""


@dataclass(slots=True)
class Call:
    """One tool call. `began_at` is None where only its end was reported; `expected_at` as the client promised last.

    `phase`: when the tool phase began to which it belongs; None while that is to come. `told`: the core knows of it.
    """

    id: str
    tool: ToolObservation
    phase: float | None
    began_at: float | None
    expected_at: float | None = None
    ended_at: float | None = None
    told: bool = False
    last: ToolReport | None = None

    @property
    def running(self) -> bool:
        return self.ended_at is None


@dataclass(slots=True)
class _SessionCalls:
    calls: OrderedDict[str, Call] = field(default_factory=OrderedDict)


class CallBook:
    """All calls of all sessions. Not thread-safe; one per gateway."""

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._sessions: OrderedDict[str, _SessionCalls] = OrderedDict()
        self._calls_max = calls_max
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, session: str, report: ToolReport, phase: float | None, now: float) -> Call | None:
        """Take a report in; None where it repeats an earlier one. `now` and promises in model seconds.

        Raises `ConflictError`, `UnknownCallError`, `TooManyCallsError`; nothing has changed then.
        """
        known = self._sessions.get(session)
        call = known.calls.get(report.call_id) if known is not None else None
        if call is not None and self._is_over(call, report, phase):
            call = None
        if call is None:
            if report.must_be_known:
                raise UnknownCallError(
                    f"nothing was reported of call {report.call_id!r} yet; name its 'tool'"
                )
            call = self._open(session, report, phase, now)
        else:
            if report.tool and report.tool != call.tool.name:
                raise ConflictError(
                    f"call {call.id!r} is one of {call.tool.name!r}, not of {report.tool!r}: each call needs its own id"
                )
            if self._repeats(call, report):
                return None
        call.last = replace(report, session="", command="")
        if report.kind is ReportKind.END:
            call.ended_at = now
        else:
            expected_at = _expected_at(call, report, now)
            call.expected_at = call.expected_at if expected_at is None else expected_at
        self._sessions.move_to_end(session)
        return call

    def of_phase(self, session: str, phase: float) -> Sequence[Call]:
        """The calls of the phase that began at `phase`; those that were waiting for one join it."""
        known = self._sessions.get(session)
        if known is None:
            return ()
        for call in known.calls.values():
            if call.phase is None:
                call.phase = phase
        return [call for call in known.calls.values() if call.phase == phase]

    def all_of(self, session: str) -> Sequence[Call]:
        """What is remembered of a session's calls, oldest first."""
        known = self._sessions.get(session)
        return () if known is None else list(known.calls.values())

    def forget(self, session: str) -> None:
        """The session is over."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self._count -= len(known.calls)

    @staticmethod
    def _is_over(call: Call, report: ToolReport, phase: float | None) -> bool:
        """Whether the id is used anew: a start in another phase than the one in which the earlier call ended."""
        return report.kind is ReportKind.START and not call.running and call.phase != phase

    @staticmethod
    def _repeats(call: Call, report: ToolReport) -> bool:
        """Whether the report says what is known already, or comes too late to say anything."""
        same = call.last == replace(report, session="", command="")
        if report.kind is ReportKind.START:
            return True  # it runs, or has ended: the start was sent twice or was overtaken
        if call.running:
            return same and report.fraction_done is None and report.remaining_seconds is None
        if report.kind is not ReportKind.END:
            return True  # overtaken by the end
        before = call.last.duration_seconds if call.last is not None else None
        if report.duration_seconds is not None and report.duration_seconds != before:
            raise ConflictError(f"call {call.id!r} has ended already, after {before} s as it was said then")
        return True

    def _open(self, session: str, report: ToolReport, phase: float | None, now: float) -> Call:
        known = self._sessions.get(session) or _SessionCalls()
        if report.call_id not in known.calls and len(known.calls) >= CALLS_OF_SESSION_MAX:
            over = next((call.id for call in known.calls.values() if not call.running), None)
            if over is None:
                raise TooManyCallsError(
                    f"{CALLS_OF_SESSION_MAX} tool calls of this session run already; report their ends"
                )
            del known.calls[over]
            self._count -= 1
        began_at = now if report.kind is not ReportKind.END else None
        call = Call(report.call_id, _observed(report), phase, began_at)
        self._count += report.call_id not in known.calls
        known.calls[call.id] = call
        known.calls.move_to_end(call.id)
        self._sessions[session] = known
        self._sessions.move_to_end(session)
        while self._count > self._calls_max:
            self.forget(next(iter(self._sessions)))
        return call


def _observed(report: ToolReport) -> ToolObservation:
    """What the report says of the tool itself. The command is read for its head and its sleeps, and not kept."""
    if not report.command:
        return ToolObservation(report.tool)
    timing = read_command(report.command)
    return ToolObservation(
        report.tool, timing.head, timing.sleep_seconds, timing.timeout_seconds, timing.background
    )


def _expected_at(call: Call, report: ToolReport, now: float) -> float | None:
    """When the call returns, as the report says; None where it says nothing."""
    if report.remaining_seconds is not None:
        return now + report.remaining_seconds
    if report.fraction_done and call.began_at is not None:
        remaining_seconds = (now - call.began_at) * (1 - report.fraction_done) / report.fraction_done
        return now + min(remaining_seconds, SECONDS_MAX)  # nearly nothing done would be nearly for ever
    return None
