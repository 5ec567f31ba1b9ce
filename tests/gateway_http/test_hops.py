"""Gateways that name each other as replicas: a request that comes back is refused, a chain of gateways is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from tao.gateway.config import Timeouts
from tao.gateway.http.asgi import App
from tao.gateway.http.hops import HOP, HOPS_MAX, Hops
from tao.gateway.http.server import serving
from tao.gateway.http.upstream import HttpUpstream
from tests.gateway_http.wire_kit import OK, EngineSide, Proxy, engine, exchange, post

Fields = list[tuple[bytes, bytes]]
names = st.sampled_from([HOP, b"X-Tao-Hop", b"accept"])
fields = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=20)


@asynccontextmanager
async def hopping(base_url: str) -> AsyncIterator[Proxy]:
    """A proxy that marks what passes."""
    hops = Hops()
    proxy = Proxy(HttpUpstream(Timeouts(), hops), base_url)
    async with serving(App(proxy, 1 << 20, hops), grace_seconds=1.0) as address:
        proxy.address = address
        yield proxy


def url(proxy: Proxy) -> str:
    return f"http://{proxy.address[0]}:{proxy.address[1]}"


async def test_a_request_that_comes_back_is_refused() -> None:
    async with hopping("http://127.0.0.1:1") as one, hopping(url(one)) as two:
        one.base_url = url(two)
        answer = await exchange(one.address, post(target=b"/v1/chat/completions"))
        assert b"HTTP/1.1 400" in answer
        assert b"a replica behind it leads back to it" in answer
        assert (len(one.seen), len(two.seen)) == (1, 1)


async def test_a_gateway_behind_a_gateway_is_fine() -> None:
    async def script(side: EngineSide) -> None:
        while await side.request():
            await side.send(OK)

    async with engine(script) as behind, hopping(behind.url) as inner, hopping(url(inner)) as outer:
        assert (await exchange(outer.address, post())).endswith(b"ok")
        (request,) = behind.requests
        assert request.lower().count(b"x-tao-hop: ") == 1


@given(fields)
def test_marks_add_up(headers: Fields) -> None:
    hops = Hops(b"me")
    marked = hops.marked(headers)
    assert [field for field in marked if field[0].lower() != HOP] == [
        field for field in headers if field[0].lower() != HOP
    ]
    assert hops.refusal(marked) is not None
    refused = hops.refusal(headers)
    assert refused is None or b"me" in b",".join(value for _, value in headers) or "gateways" in refused


def test_the_way_is_bounded() -> None:
    headers: Fields = []
    for number in range(HOPS_MAX):
        hops = Hops(f"gateway-{number}".encode())
        assert hops.refusal(headers) is None
        headers = hops.marked(headers)
    assert "more than 16" in (Hops().refusal(headers) or "")
