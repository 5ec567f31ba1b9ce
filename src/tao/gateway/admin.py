"""What operators ask the gateway itself: health, readiness, state, metrics, explanations. Answers only; no decisions.

JSON everywhere but on `/metrics`. The pages tell facts and session ids, never prompts or keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tao.core.ids import SessionId
from tao.gateway import openapi
from tao.gateway.cachewatch import CacheWatch
from tao.gateway.driver import Driver
from tao.gateway.fleet import Fleet
from tao.gateway.member import Member
from tao.gateway.metrics import GatewayMetrics
from tao.gateway.replies import JSON
from tao.gateway.tools import ToolService
from tao.gateway.wire.identity import bounded_id
from tao.policies.readiness import ToolReadiness
from tao.policies.survival import MeasuredSurvival

PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
SESSIONS_SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class Page:
    """A complete answer."""

    status: int
    content_type: bytes
    body: bytes


class Admin:
    """The pages outside `/v1`."""

    def __init__(
        self,
        driver: Driver,
        fleet: Fleet,
        metrics: GatewayMetrics,
        tools: ToolService,
        *,
        prediction: ToolReadiness | None = None,
        watch: CacheWatch | None = None,
        survival: MeasuredSurvival | None = None,
    ) -> None:
        self._driver = driver
        self._fleet = fleet
        self._metrics = metrics
        self._tools = tools
        self._prediction = prediction
        self._watch = watch
        self._survival = survival

    def page(self, path: str) -> Page | None:
        """The page at a path (percent-decoded, as ASGI gives it); None where there is none."""
        if path.startswith("/explain/"):
            return self._explain(path.removeprefix("/explain/"))
        pages = {
            "/healthz": self._health,
            "/readyz": self._ready,
            "/state": self._state,
            "/metrics": self._metrics_page,
            "/openapi.json": self._openapi,
        }
        make = pages.get(path)
        return None if make is None else make()

    def _health(self) -> Page:
        if self._driver.failure is not None:
            return _json(500, {"status": "failed", "failure": self._driver.failure})
        return _json(200, {"status": "ok"})

    def _ready(self) -> Page:
        snapshot = self._driver.scheduler.snapshot()
        why = None
        if self._driver.failure is not None:
            why = f"the scheduler failed: {self._driver.failure}"
        elif snapshot["shutting_down"]:
            why = "shutting down"
        elif not self._fleet.up():
            is_draining = any(member.up for member in self._fleet)
            why = "all replicas that are up are draining" if is_draining else "no replica is up"
        return _json(
            200 if why is None else 503,
            {
                "ready": why is None,
                "why": why,
                "replicas": {member.id: _readiness(member) for member in self._fleet},
            },
        )

    def _state(self) -> Page:
        state = self._driver.scheduler.snapshot(self._driver.clock.now())
        sessions = state["sessions"]
        assert isinstance(sessions, list)
        state["sessions_total"] = len(sessions)
        state["sessions"] = sessions[-SESSIONS_SHOWN_MAX:]
        state["speed"] = self._driver.clock.speed
        state["engines"] = self._fleet.describe()
        state["reconciliation"] = self._fleet.reconciliation.describe()
        _in_order_of(state["replicas"], [member.id for member in self._fleet])
        state["kv_events"] = [] if self._watch is None else self._watch.describe()
        if self._survival is not None:
            state["credit"] = self._survival.shown()
        if self._prediction is not None:
            state["prediction"] = {
                "predictor": self._prediction.predictor.name,
                "tools": self._prediction.judged().to_json(),
            }
        return _json(200, state)

    def _metrics_page(self) -> Page:
        return Page(200, PROMETHEUS, self._metrics.page())

    def _openapi(self) -> Page:
        return _json(200, openapi.document())

    def _explain(self, session: str) -> Page:
        """By the full id, or by the client's own id where only one tenant uses it."""
        known = self._driver.scheduler.view.sessions
        own = {session, bounded_id(session)}
        matches = [s for s in known if s == session or s.partition("/")[2] in own]
        if SessionId(session) in known:
            matches = [SessionId(session)]
        if not matches:
            return _json(404, {"error": f"no open session is named {session!r}; /state lists them"})
        if len(matches) > 1:
            return _json(409, {"error": f"{session!r} names several sessions", "sessions": matches})
        told = self._driver.scheduler.explain(matches[0], self._driver.clock.now())
        assert told is not None
        calls = self._tools.explain(matches[0])
        return _json(200, {**told, "speed": self._driver.clock.speed, "reported_calls": calls})


def _in_order_of(rows: object, ids: Sequence[str]) -> None:
    """Sort rows by where their ids are named; those that are not come last, as they stand."""
    place = {name: number for number, name in enumerate(ids)}
    assert isinstance(rows, list)
    rows.sort(key=lambda row: place.get(row["id"], len(place)))


def _readiness(member: Member) -> bool | str:
    """True where it takes turns, else what keeps it from them."""
    if not member.up:
        return member.sighting.detail
    return "draining" if member.draining else True


def _json(status: int, document: object) -> Page:
    return Page(status, JSON, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
