"""What operators and trainers tell the gateway to do: replicas in and out, new weights. Guarded by a token.

`GET /v1/tao/replicas` lists and needs no token, as `/state` does not. Changes need `Authorization: Bearer TOKEN`; without a
token in the configuration they are off. It must not know what a change leads to.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
import structlog

from tao.core.commands import Command
from tao.core.events import Event, WeightsUpdateBegan, WeightsUpdateEnded
from tao.gateway.bearer import change_refusal
from tao.gateway.driver import Driver
from tao.gateway.exchange import Client, ClientRequest
from tao.gateway.fleet import Fleet, UnknownReplicaError
from tao.gateway.replies import JSON, answer, error_document
from tao.gateway.roster import Roster
from tao.gateway.sources import AddressError, Slots
from tao.gateway.wire.lenient import MALFORMED_JSON

REPLICAS_PATH = "/v1/tao/replicas"
LIST_ALIAS = "/list_workers"
"""This and `/add_worker?url=`, `/remove_worker?url=` are how trainers register engines at other routers."""
WEIGHTS_PATH = "/v1/tao/weights"
WEIGHTS_ALIAS = "/weight_sync"  # ThunderAgent's
WEIGHTS_SECONDS = 600.0
WEIGHTS_SECONDS_MAX = 7200.0


class AddReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`url`: scheme, host, port and perhaps a path; without `/v1`. `slots`: how many sessions it takes at once; where not
    given, as the sources and the configuration say.
    """

    url: str
    slots: Slots | None = None


class NamedReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`replica`: its id (`HOST:PORT`) or its URL."""

    replica: str


class BeginWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`deadline_seconds`: when the update counts as over if its end is never told."""

    deadline_seconds: Annotated[float, msgspec.Meta(gt=0, le=WEIGHTS_SECONDS_MAX)] = WEIGHTS_SECONDS


class EndWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say beside that it is over."""


Json = dict[str, Any]
Act = Callable[[ClientRequest], Json]


class Operators:
    """Serves `/v1/tao/...` but for tool reports. `token`: what changes need; None: there are none."""

    def __init__(self, driver: Driver, fleet: Fleet, roster: Roster, token: str | None) -> None:
        self._driver = driver
        self._fleet = fleet
        self._roster = roster
        self._token = token
        self._log = structlog.get_logger("tao.operators")
        self._weights_until: float | None = None
        self._acts: dict[str, Act] = {
            REPLICAS_PATH: self._add,
            f"{REPLICAS_PATH}/drain": self._drain,
            f"{REPLICAS_PATH}/remove": self._remove,
        }
        self._acts |= {"/add_worker": self._add_worker, "/remove_worker": self._remove_worker}
        for path in (WEIGHTS_PATH, WEIGHTS_ALIAS):
            self._acts |= {f"{path}/begin": self._begin_weights, f"{path}/end": self._end_weights}

    def serves(self, request: ClientRequest) -> bool:
        """Whether `request` is for here."""
        return request.path in self._acts or request.path == LIST_ALIAS

    async def serve(self, request: ClientRequest, client: Client) -> None:
        """Answer a request that is for here."""
        status, document = self._answer(request)
        await answer(client, status, JSON, msgspec.json.encode(document))

    def observe(self, event: Event, commands: Sequence[Command]) -> None:  # noqa: ARG002 - as observers are called
        """Say where an update of weights ends only because its deadline has passed: its trainer may be dead."""
        match event:
            case WeightsUpdateBegan(until=until):
                self._weights_until = until
            case WeightsUpdateEnded():
                self._weights_until = None
            case _ if self._weights_until is not None and event.at >= self._weights_until:
                self._weights_until = None
                self._log.warning("nobody has ended the update of weights: its deadline has passed")

    def _answer(self, request: ClientRequest) -> tuple[int, Json]:
        if request.path == REPLICAS_PATH and request.method in {"GET", "HEAD"}:
            return 200, {"replicas": self._fleet.describe(), "sources": self._roster.describe()}
        if request.path == LIST_ALIAS and request.method in {"GET", "HEAD"}:
            return 200, {"urls": [member.url for member in self._fleet if member.leave_at is None]}
        refused = change_refusal(request, self._token)
        return self._act(request) if refused is None else refused

    def _act(self, request: ClientRequest) -> tuple[int, Json]:
        try:
            told = self._acts[request.path](request)
        except (*MALFORMED_JSON, AddressError) as error:
            return 400, error_document("malformed_request", str(error))
        except UnknownReplicaError as error:
            return 404, error_document("unknown_replica", str(error))
        changed = {name: value for name, value in told.items() if name != "now"}
        self._log.warning("an operator changed something", path=request.path, **changed)
        return 200, told

    def _add(self, request: ClientRequest) -> Json:
        asked = msgspec.json.decode(request.body, type=AddReplica)
        return self._told(self._roster.add(asked.url, asked.slots))

    def _drain(self, request: ClientRequest) -> Json:
        return self._told(self._roster.drain(msgspec.json.decode(request.body, type=NamedReplica).replica))

    def _remove(self, request: ClientRequest) -> Json:
        return self._told(self._roster.remove(msgspec.json.decode(request.body, type=NamedReplica).replica))

    def _add_worker(self, request: ClientRequest) -> Json:
        return self._told(self._roster.add(_url_in_query(request)))

    def _remove_worker(self, request: ClientRequest) -> Json:
        return self._told(self._roster.remove(_url_in_query(request)))

    def _begin_weights(self, request: ClientRequest) -> Json:
        deadline_seconds = msgspec.json.decode(request.body or b"{}", type=BeginWeights).deadline_seconds
        now = self._driver.clock.now()
        self._driver.feed(WeightsUpdateBegan(now, now + deadline_seconds * self._driver.clock.speed))
        return self._weights()

    def _end_weights(self, request: ClientRequest) -> Json:
        msgspec.json.decode(request.body or b"{}", type=EndWeights)
        self._driver.feed(WeightsUpdateEnded(self._driver.clock.now()))
        return self._weights()

    def _weights(self) -> Json:
        """What a trainer wants to know: whether anything still runs with the old weights."""
        state = self._driver.scheduler.snapshot(self._driver.clock.now())
        replicas = self._driver.scheduler.view.replicas.values()
        return {
            "updating": state["weights_update_ends_in_seconds"] is not None,
            "turns_in_flight": sum(replica.turns_in_flight for replica in replicas),
            "held_turns": state["held_turns"],
        }

    def _told(self, replica: str) -> Json:
        shown = next((member for member in self._fleet.describe() if member["id"] == replica), None)
        return {"replica": replica, "now": shown}


def _url_in_query(request: ClientRequest) -> str:
    urls = parse_qs(request.query, max_num_fields=8).get("url", []) if request.query.count("&") < 8 else []
    if len(urls) != 1:
        raise AddressError(
            f"{request.path} needs one replica in its query: {request.path}?url=http://HOST:PORT"
        )
    return urls[0]
