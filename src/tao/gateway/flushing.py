"""Emptying prefix caches through the gateway: each engine is asked in its own way, and all credit there is void at once.

`POST /v1/tao/flush`, and the engines' own paths, for clients that think they talk to one. Guarded by the operators' token.
An engine that refuses, because its cache is in use, keeps its cache and its sessions their credit; the answer says so. One
that was asked and has not answered may have done it, so credit is void there too. It must not know what credit is.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from tao.core.events import CacheFlushed
from tao.engines import SglangAdapter, VllmAdapter
from tao.gateway.bearer import change_refusal
from tao.gateway.driver import Driver
from tao.gateway.exchange import BrokenError, Client, ClientRequest, UnreachableError, Upstream, whole_body
from tao.gateway.fleet import Fleet, UnknownReplicaError
from tao.gateway.member import Member
from tao.gateway.replies import JSON, answer, error_document
from tao.gateway.sources import AddressError
from tao.gateway.wire import lenient

PATH = "/v1/tao/flush"
ENGINE_PATHS = {engine.name: engine.flush_path for engine in (VllmAdapter(), SglangAdapter())}
PATHS = frozenset({PATH, *ENGINE_PATHS.values()})
ANSWER_BYTES_MAX = 64 << 10
IN_USE = "its cache is in use"

Json = dict[str, Any]


class FlushRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`replica`: its id (`HOST:PORT`) or its URL; None: all."""

    replica: str | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`why`: what kept an engine from flushing, as far as is known; nothing where it has. `may_be_empty`: its cache."""

    why: str
    may_be_empty: bool = False


class Flushing:
    """Serves the paths above. `token`: what they need; None: they are off."""

    def __init__(
        self, driver: Driver, fleet: Fleet, upstream: Upstream, token: str | None, seconds_max: float
    ) -> None:
        self._driver = driver
        self._fleet = fleet
        self._upstream = upstream
        self._token = token
        self._seconds_max = seconds_max
        self._log = structlog.get_logger("tao.operators")

    def serves(self, request: ClientRequest) -> bool:
        """Whether `request` is for here."""
        return request.path in PATHS

    async def serve(self, request: ClientRequest, client: Client) -> None:
        """Answer a request that is for here."""
        status, document = await self._answer(request)
        await answer(client, status, JSON, msgspec.json.encode(document))

    async def _answer(self, request: ClientRequest) -> tuple[int, Json]:
        refused = change_refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            wanted = self._wanted(request)
        except (*lenient.MALFORMED_JSON, AddressError) as error:
            return 400, error_document("malformed_request", str(error))
        except UnknownReplicaError as error:
            return 404, error_document("unknown_replica", str(error))
        told = await asyncio.gather(*(self._flush(member) for member in wanted))
        flushed = all(row["flushed"] for row in told)
        self._log.warning("the gateway was asked to flush caches", flushed=flushed, replicas=list(told))
        return 200 if flushed else 409, {"success": flushed, "replicas": list(told)}

    def _wanted(self, request: ClientRequest) -> list[Member]:
        """The replicas that are meant. Raises as `Fleet.find` does."""
        if request.path != PATH or not request.body.strip():
            return list(self._fleet)
        name = msgspec.json.decode(request.body, type=FlushRequest).replica
        return list(self._fleet) if name is None else [self._fleet.find(name)]

    async def _flush(self, member: Member) -> Json:
        known = ENGINE_PATHS.get(member.sighting.engine)
        why = ""
        for path in ENGINE_PATHS.values() if known is None else (known,):
            outcome = await self._ask(member, path)
            why = outcome.why
            if outcome.may_be_empty:
                self._driver.feed(CacheFlushed(self._driver.clock.now(), member.id))
            if not why:
                return {"replica": member.id, "flushed": True}
        return {"replica": member.id, "flushed": False, "why": why}

    async def _ask(self, member: Member, path: str) -> _Outcome:
        """Ask one engine."""
        request = ClientRequest("POST", path, "", path, ((b"accept", b"application/json"),), b"")
        try:
            async with asyncio.timeout(self._seconds_max):
                reply = await self._upstream.send(member.url, request)
                body = await whole_body(reply, ANSWER_BYTES_MAX)
        except (TimeoutError, UnreachableError, BrokenError) as error:
            told = str(error) or f"no answer within {self._seconds_max:g} s"
            return _Outcome(
                f"{told}; its cache may be empty, so nothing is believed of it", may_be_empty=True
            )
        if reply.status == 400 and path == SglangAdapter.flush_path:
            return _Outcome(IN_USE)
        if reply.status != 200:
            hint = " (vLLM: VLLM_SERVER_DEV_MODE=1)" if reply.status == 404 else ""
            return _Outcome(f"{path} answers {reply.status}{hint}")
        # vLLM answers 200 in any case, and tells in the body; SGLang 400
        refused = (lenient.object_or_none(body) or {}).get("success") is False
        return _Outcome(IN_USE) if refused else _Outcome("", may_be_empty=True)
