"""EndpointSlices as data (discovery.k8s.io/v1), and the replicas that a service's slices describe together.

Conditions that are not told mean what the API says they mean: ready. A pod with an IPv4 and an IPv6 address is in two
slices and is one replica all the same. It must not know HTTP.
"""

from collections.abc import Iterable

import msgspec

from tao.gateway.sources.addresses import in_url
from tao.gateway.sources.port import Wanted


class SliceError(ValueError):
    """An object that is no EndpointSlice."""


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


def wanted_of(slices: Iterable[Slice], port: str | None) -> tuple[tuple[Wanted, ...], list[str]]:
    """The replicas of all slices of a service in the order of their URLs, and what is wrong with some of the slices.

    An endpoint that is ready in one slice and not in another is ready: it is on its way from one to the other.
    """
    problems: list[str] = []
    pods: dict[str, Wanted] = {}
    for piece in sorted(slices, key=lambda piece: (piece.address_type, piece.name)):
        found, problem = _port_of(piece, port)
        if found is None:
            if piece.endpoints:
                problems.append(f"slice {piece.name}: {problem}")
            continue
        for endpoint in piece.endpoints or ():
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
    return tuple(by_url.values()), problems


def _port_of(piece: Slice, port: str | None) -> tuple[_Port | None, str]:
    ports = [each for each in piece.ports or () if each.port is not None]
    if port is not None:
        ports = [each for each in ports if port in {each.name, str(each.port)}]
        if len(ports) == 1:
            return ports[0], ""
        return None, f"has no port {port!r}" if not ports else f"has several ports {port!r}"
    if len(ports) == 1:
        return ports[0], ""
    names = ", ".join(each.name or str(each.port) for each in ports)
    return None, f"has {len(ports)} ports ({names or 'none'}); name one: NAMESPACE/SERVICE:PORT"
