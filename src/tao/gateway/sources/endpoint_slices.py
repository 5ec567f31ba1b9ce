"""EndpointSlices as data (discovery.k8s.io/v1), and the replicas that a service's slices describe together.

Conditions that are not told mean what the API says they mean: ready. A pod with an IPv4 and an IPv6 address is in two
slices and is one replica all the same. Slices that do not say clearly which replicas there are say nothing: a port that was
renamed must not look like a service without endpoints. It must not know HTTP.
"""

from collections.abc import Iterable

import msgspec

from tao.gateway.sources.addresses import in_url
from tao.gateway.sources.port import Wanted


class SliceError(ValueError):
    """An object that is no EndpointSlice, or slices that do not say which replicas there are; the message says what is wrong
    and what to do.
    """


class _Conditions(msgspec.Struct):
    ready: bool | None = None
    terminating: bool | None = None


class _Target(msgspec.Struct):
    uid: str | None = None


class _Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str]
    conditions: _Conditions | None = None
    target_ref: _Target | None = None

    @property
    def ready(self) -> bool:
        told = self.conditions or _Conditions()
        return told.ready is not False and told.terminating is not True

    @property
    def pod(self) -> str:
        """What is the same in all slices in which the endpoint is."""
        return (self.target_ref.uid if self.target_ref is not None else None) or self.addresses[0]


class _Port(msgspec.Struct, rename="camel"):
    name: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class _Metadata(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Metadata


class Slice(msgspec.Struct, rename="camel"):
    """One EndpointSlice, as far as it is needed."""

    metadata: _Metadata
    address_type: str = "IPv4"
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None

    @property
    def name(self) -> str:
        return self.metadata.name


def parse_slice(document: object) -> Slice:
    """Raises `SliceError`. Fields that are not known are left out, as the API's rules want it."""
    try:
        return msgspec.convert(document, Slice)
    except msgspec.ValidationError as error:
        raise SliceError(f"an object that is no EndpointSlice: {error}") from None


class ServiceSlices:
    """The slices of one service as they were told last, also those that cannot be read."""

    def __init__(self) -> None:
        self._readable: dict[str, Slice] = {}
        self._unreadable: dict[str, SliceError] = {}

    def apply(self, kind: str, document: object) -> None:
        """Take in an event of a watch; an item of a list is `ADDED`. Raises `SliceError` where it has no name."""
        name = _name_of(document)
        self._readable.pop(name, None)
        self._unreadable.pop(name, None)
        if kind == "DELETED":
            return
        try:
            self._readable[name] = parse_slice(document)
        except SliceError as error:
            self._unreadable[name] = error

    def wanted(self, port: str | None) -> tuple[Wanted, ...]:
        """The replicas that all of them describe. Raises `SliceError` where one cannot be read or is not clear."""
        if self._unreadable:
            name = min(self._unreadable)
            raise SliceError(f"slice {name}: {self._unreadable[name]}; mend or delete it")
        return wanted_of(self._readable.values(), port)


def wanted_of(slices: Iterable[Slice], port: str | None) -> tuple[Wanted, ...]:
    """The replicas of all slices of a service in the order of their URLs.

    An endpoint that is ready in one slice and not in another is ready: it is on its way from one to the other. Raises
    `SliceError` where a slice that has endpoints does not say on which port they serve.
    """
    pods: dict[str, Wanted] = {}
    for piece in sorted(slices, key=lambda piece: (piece.address_type, piece.name)):
        if not piece.endpoints:
            continue
        found = _port_of(piece, port)
        for endpoint in piece.endpoints:
            if not endpoint.addresses:
                continue
            scheme = "https" if found.app_protocol == "https" else "http"
            url = f"{scheme}://{in_url(endpoint.addresses[0])}:{found.port}"
            known = pods.get(endpoint.pod)
            if known is None:
                pods[endpoint.pod] = Wanted(url, draining=not endpoint.ready)
            elif known.draining and endpoint.ready:
                pods[endpoint.pod] = Wanted(known.url)
    by_url: dict[str, Wanted] = {}
    for wanted in sorted(pods.values(), key=lambda wanted: (wanted.url, wanted.draining)):
        by_url.setdefault(wanted.url, wanted)
    return tuple(by_url.values())


def _port_of(piece: Slice, port: str | None) -> _Port:
    ports = [each for each in piece.ports or () if each.port is not None]
    meant = [each for each in ports if port is None or port in {each.name, str(each.port)}]
    if len(meant) == 1:
        return meant[0]
    there_are = ", ".join(each.name or str(each.port) for each in ports) or "none"
    if port is None:
        wrong = f"has {len(ports)} ports ({there_are}); name one that the service has: NAMESPACE/SERVICE:PORT"
    elif meant:
        wrong = f"has several ports {port!r}; name one by its name, of: {there_are}"
    else:
        wrong = (
            f"has no port {port!r}; name one that it has ({there_are}), or give the service that port again"
        )
    raise SliceError(f"slice {piece.name} {wrong}")


def _name_of(document: object) -> str:
    try:
        return msgspec.convert(document, _Named).metadata.name
    except msgspec.ValidationError as error:
        raise SliceError(f"an object that is no EndpointSlice: {error}") from None
