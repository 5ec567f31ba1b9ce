"""Asking for usage on a client's behalf: what is added to the request, and what is taken out of the stream."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.gateway.askusage import EVENT_BYTES_MAX, UsageStripper, asking_usage
from tao.gateway.exchange import Client, ClientRequest, RawHeaders
from tao.gateway.wire.requests import parse_request

TEXT = b'data: {"choices":[{"delta":{"content":"\\"usage\\": {}"}}],"usage":null}\n\n'
USAGE = b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


class Got:
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.body = b""
        self.started = False
        self.ended = ""

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = True

    async def send(self, chunk: bytes) -> None:
        assert chunk
        self.body += chunk

    async def finish(self) -> None:
        self.ended = "finished"

    def abort(self) -> None:
        self.ended = "aborted"


def asked(
    body: bytes, path: str = "/v1/chat/completions", headers: RawHeaders = (), client: Client | None = None
) -> tuple[ClientRequest, Client]:
    request = ClientRequest("POST", path, "", path, headers, body)
    return asking_usage(request, parse_request("POST", path, headers, body), client or Got())


BODY = b' {"model":"m","stream":true,"messages":[{"role":"user","content":"{"}],"x": 1.50}'


def test_the_question_is_put_in_and_nothing_else_changes() -> None:
    request, client = asked(BODY, headers=((b"accept-encoding", b"gzip"), (b"x-a", b"b")))
    question = b'"stream_options":{"include_usage":true},'
    assert request.body == b" {" + question + BODY[2:]
    assert request.headers == ((b"x-a", b"b"),)  # the answer has to be readable
    assert not isinstance(client, Got)
    again = parse_request("POST", request.path, request.headers, request.body)
    assert again.wants_usage
    before = parse_request("POST", request.path, (), BODY)
    assert {key: again.body[key] for key in before.body} == before.body


@pytest.mark.parametrize(
    ("body", "path", "headers"),
    [
        (BODY.replace(b"true", b"false"), "/v1/chat/completions", ()),
        (BODY.replace(b"{", b'{"stream_options":{"include_usage":false},', 1), "/v1/chat/completions", ()),
        (BODY.replace(b"{", b'{"stream_options":null,', 1), "/v1/chat/completions", ()),
        (BODY, "/v1/messages", ()),
        (BODY, "/v1/chat/completions", ((b"content-encoding", b"br"),)),
    ],
)
def test_where_there_is_no_need_nothing_changes(body: bytes, path: str, headers: RawHeaders) -> None:
    given_client = Got()
    request, client = asked(body, path, headers, given_client)
    assert (request.body, request.headers) == (body, headers)
    assert client is given_client


@given(
    st.lists(st.sampled_from([TEXT, USAGE, DONE, b": ping\n\n", b"event: x\ndata: {}\n\n"]), max_size=8),
    st.lists(st.integers(0, 400), max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_the_usage_chunk_and_nothing_else_is_taken_out_however_the_bytes_are_split(
    events: list[bytes], cuts: list[int], newline: bytes
) -> None:
    stream = [event.replace(b"\r\n", b"\n").replace(b"\n", newline) for event in events]
    whole = b"".join(stream)
    stripper = UsageStripper()
    got = b""
    places = sorted({0, *(min(cut, len(whole)) for cut in cuts), len(whole)})
    for start, end in pairwise(places):
        got += stripper.feed(whole[start:end])
    got += stripper.close()
    usage = USAGE.replace(b"\n", newline)
    assert got == b"".join(event for event in stream if event != usage)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1 << 20])
def test_every_split(step: int) -> None:
    whole = TEXT + USAGE + DONE
    stripper = UsageStripper()
    got = b"".join(stripper.feed(whole[at : at + step]) for at in range(0, len(whole), step))
    assert got + stripper.close() == TEXT + DONE


def test_a_huge_event_is_passed_on_and_what_follows_is_still_looked_at() -> None:
    huge = b'data: {"choices":[{"delta":{"content":"' + b"x" * (EVENT_BYTES_MAX + 10) + b'"}}]}\n\n'
    whole = huge + USAGE + DONE
    stripper = UsageStripper()
    got = b"".join(stripper.feed(whole[at : at + 65_536]) for at in range(0, len(whole), 65_536))
    assert got + stripper.close() == huge + DONE


def test_chunks_that_only_look_like_it_stay() -> None:
    others = (
        b'data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}\n\n'
        b'data: {"choices":[],"usage":null}\n\n'
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
        b'data: "usage"\n\n'
        b'data: {"usage"\n\n'
        b'data: {"usage": "\xff"}\n\n'
        b': "usage"\n\n'
    )
    assert UsageStripper().feed(others) == others


async def test_the_client_of_a_stream_does_not_see_it_and_others_see_all() -> None:
    got = Got()
    _, client = asked(BODY, client=got)
    await client.start(200, ((b"content-type", b"text/event-stream; charset=utf-8"),))
    assert client.started
    for piece in (TEXT[:9], TEXT[9:] + USAGE, DONE[:-1]):
        await client.send(piece)
    await client.finish()
    assert (got.body, got.ended) == (TEXT + DONE[:-1], "finished")

    got = Got()
    _, client = asked(BODY, client=got)
    await client.start(400, ((b"content-type", b"application/json"),))
    await client.send(USAGE)
    client.abort()
    assert (got.body, got.ended) == (USAGE, "aborted")


async def test_a_stream_that_names_no_coding_by_its_name_is_plain_too() -> None:
    got = Got()
    _, client = asked(BODY, client=got)
    await client.start(200, ((b"content-type", b"text/event-stream"), (b"content-encoding", b"identity")))
    await client.send(TEXT + USAGE + DONE)
    await client.finish()
    assert got.body == TEXT + DONE
