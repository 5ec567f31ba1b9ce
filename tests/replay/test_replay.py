"""The replay against a real server on loopback: prompts, waits, children, errors, and that nothing hangs."""

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import pytest
from aiohttp import web

from tao.record.summary import summarise
from tao.replay import EndpointError, Replay, ReplayConfig, ReplayProgress, replay
from tao.traces import TraceSession, TraceTool, TraceTurn, read_trace, sample_path
from tests.replay.fake_endpoint import CHARS_PER_TOKEN, FakeEndpoint, chunk, start_stream

FAST = 1000.0  # a tool of one second takes one millisecond


def tool(seconds: float = 1.0, **more: object) -> TraceTool:
    return TraceTool(name="bash", duration_seconds=seconds, **more)  # type: ignore[arg-type]


def session(
    name: str, prompts: Sequence[int], *, output: int = 20, tool_seconds: float = 1.0, **more: object
) -> TraceSession:
    turns = tuple(
        TraceTurn(
            prompt_tokens=tokens,
            output_tokens=output,
            tool=tool(tool_seconds) if index + 1 < len(prompts) else None,
        )
        for index, tokens in enumerate(prompts)
    )
    return TraceSession(session_id=name, turns=turns, **more)  # type: ignore[arg-type]


def config(endpoint: FakeEndpoint, **more: object) -> ReplayConfig:
    return ReplayConfig(target=endpoint.url, speed=FAST, **more)  # type: ignore[arg-type]


async def test_prompts_extend_one_another_byte_for_byte_and_have_the_recorded_length(
    endpoint: FakeEndpoint,
) -> None:
    recorded = [1000, 1600, 2500, 2600, 4000]
    measured = await replay(config(endpoint), [session("a", recorded)])
    seen = endpoint.by_session("a")
    assert [m.error for m in measured] == [None] * 5
    for earlier, later in itertools.pairwise(seen):
        assert later.prompt.startswith(earlier.prompt)
        messages = earlier.raw[earlier.raw.index(b'"messages":[') : earlier.raw.rindex(b"]")]
        assert later.raw[later.raw.index(b'"messages":[') :].startswith(messages)
    assert [s.prompt_tokens for s in seen] == pytest.approx(recorded, rel=0.02)
    # All but the newest message is served from the cache.
    assert measured[4].cached_tokens == pytest.approx(2600 + 20, rel=0.02)


async def test_requests_ask_for_exactly_the_recorded_output_and_for_usage(endpoint: FakeEndpoint) -> None:
    measured = await replay(config(endpoint), [session("a", [500], output=37)])
    body = endpoint.seen[0].body
    assert body["model"] == "fake-model"
    assert body["max_tokens"] == 37
    assert body["ignore_eos"] is True
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert measured[0].output_tokens == 37


async def test_the_ratio_is_learned_without_tokenize(endpoint: FakeEndpoint) -> None:
    endpoint.has_tokenize = False
    await replay(config(endpoint), [session("a", [1000, 2000, 3000, 4000])])
    lengths = [s.prompt_tokens for s in endpoint.by_session("a")]
    assert lengths[0] == pytest.approx(1000 * 4 / CHARS_PER_TOKEN, rel=0.02)  # the first guess: 4 characters
    assert lengths[1:] == pytest.approx([2000, 3000, 4000], rel=0.02)


async def test_compaction_starts_a_new_prefix_and_noise_does_not(endpoint: FakeEndpoint) -> None:
    recorded = session("a", [3000, 2990, 1000, 1500], system_tokens=300)
    await replay(config(endpoint), [recorded])
    first, noise, compacted, after = endpoint.by_session("a")
    assert noise.prompt.startswith(first.prompt)
    assert not compacted.prompt.startswith(noise.prompt)
    assert compacted.prompt[:900] == first.prompt[:900]  # the system prompt stays
    assert compacted.prompt_tokens == pytest.approx(1000, rel=0.02)
    assert after.prompt.startswith(compacted.prompt)


async def test_sessions_of_one_source_share_the_recorded_prefix_and_nothing_else(
    endpoint: FakeEndpoint,
) -> None:
    sessions = [session(name, [1000], source="s", system_tokens=200, tool_tokens=300) for name in "ab"]
    measured = await replay(config(endpoint, concurrency=1), sessions)
    assert [m.cached_tokens for m in measured] == [0, pytest.approx(500, abs=20)]
    other = [session("c", [1000], source="t")]
    assert (await replay(config(endpoint), other))[0].cached_tokens == pytest.approx(0, abs=5)


async def test_a_shared_system_prompt_can_be_set(endpoint: FakeEndpoint) -> None:
    sessions = [session(name, [1000]) for name in "ab"]
    measured = await replay(config(endpoint, concurrency=1, system_tokens=400), sessions)
    assert measured[1].cached_tokens == pytest.approx(400, abs=20)


async def test_rollouts_of_one_prompt_begin_with_the_same_bytes(endpoint: FakeEndpoint) -> None:
    group = [
        msgspec.structs.replace(session(name, [1000, 1400]), prompt_group=of)
        for name, of in (("a", "g"), ("b", "g"), ("c", "h"))
    ]
    measured = await replay(config(endpoint, concurrency=1), group)
    first = [m.cached_tokens for m in measured if m.turn_index == 0]
    assert first == [0, pytest.approx(1000, abs=20), pytest.approx(0, abs=5)]


async def test_times_are_model_seconds(endpoint: FakeEndpoint) -> None:
    endpoint.hold_seconds = "12.5"
    slow = session("a", [100, 200], tool_seconds=40.0)
    first, second = await replay(config(endpoint), [slow])
    assert 40.0 <= second.arrived_at - first.finished_at < 40.0 + 0.5 * FAST
    assert second.tool_ended_at is not None
    assert first.finished_at + 40.0 <= second.tool_ended_at <= second.arrived_at
    assert first.tool_ended_at is None
    assert first.hold_seconds == 12.5
    assert first.first_token_at is not None
    assert first.arrived_at < first.first_token_at <= first.finished_at


async def test_human_waits_are_capped_and_are_no_tools(endpoint: FakeEndpoint) -> None:
    asked = TraceTurn(
        prompt_tokens=100,
        output_tokens=5,
        tool=TraceTool(name="user_wait", duration_seconds=78_000.0),
    )
    gap = TraceTurn(prompt_tokens=200, output_tokens=5, user_gap_seconds=78_000.0)
    last = TraceTurn(prompt_tokens=300, output_tokens=5)
    recorded = TraceSession(session_id="a", turns=(asked, gap, last))
    measured = await replay(config(endpoint, human_wait_seconds_max=20.0), [recorded])
    waits = [b.arrived_at - a.finished_at for a, b in itertools.pairwise(measured)]
    assert all(20.0 <= wait < 20.0 + 0.5 * FAST for wait in waits)
    assert [m.tool_ended_at for m in measured] == [None, None, None]


async def test_children_start_after_the_parents_turn_and_end_its_tool(endpoint: FakeEndpoint) -> None:
    parent = session("p", [500, 900, 1200], tool_seconds=5000.0)  # 5 s of wall time if it were waited for
    child = session("c", [300, 400], parent="p", parent_turn=1)
    quick = TraceTurn(prompt_tokens=500, output_tokens=5, tool=tool(1.0))
    parent = TraceSession(session_id="p", turns=(quick, *parent.turns[1:]))
    measured = await asyncio.wait_for(replay(config(endpoint, concurrency=1), [child, parent]), 4.0)
    at = {(m.session_id, m.turn_index): m for m in measured}
    assert at["c", 0].arrived_at >= at["p", 1].finished_at
    assert at["p", 2].arrived_at >= at["c", 1].finished_at
    assert at["c", 0].parent_session_id == "p"
    assert endpoint.by_session("c")[0].headers["X-Parent-Session-ID"] == "p"


async def test_circles_of_parents_and_double_ids_are_refused(endpoint: FakeEndpoint) -> None:
    a, b = session("a", [10], parent="b", parent_turn=0), session("b", [10], parent="a", parent_turn=0)
    with pytest.raises(ValueError, match="own ancestor"):
        await replay(config(endpoint), [a, b])
    with pytest.raises(ValueError, match="unique"):
        await replay(config(endpoint), [session("a", [10]), session("a", [10])])


async def test_at_most_concurrency_sessions_run_at_once_and_all_run(endpoint: FakeEndpoint) -> None:
    sessions = [session(f"s{i}", [100, 200, 300]) for i in range(12)]
    progress: list[ReplayProgress] = []
    measured = await replay(config(endpoint, concurrency=3), sessions, progress.append)
    spans = [
        (min(m.arrived_at for m in own), max(m.finished_at for m in own))
        for own in ([m for m in measured if m.session_id == s.session_id] for s in sessions)
    ]
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) <= 3
    assert (progress[-1].sessions_done, progress[-1].turns_done) == (12, 36)
    assert progress[-1].prompt_tokens == sum(m.prompt_tokens or 0 for m in measured)


async def test_headers_are_configurable_and_ids_are_made_fit_for_them(endpoint: FakeEndpoint) -> None:
    await replay(
        config(endpoint, session_header="X-My", final_header="x-session-final", api_key="k", run_id="r1-"),
        [session("a\nö", [100, 200])],
    )
    first, last = endpoint.seen
    assert first.headers["X-My"] == "r1-a%0A%C3%B6"
    assert first.headers["Authorization"] == "Bearer k"
    assert "x-session-final" not in first.headers
    assert last.headers["x-session-final"] == "true"
    await replay(config(endpoint, session_header=None), [session("b", [100])])
    assert "X-Session-ID" not in endpoint.seen[-1].headers


async def test_an_endpoint_that_neither_streams_nor_counts_still_works(endpoint: FakeEndpoint) -> None:
    endpoint.reports_usage = False
    measured = await replay(config(endpoint), [session("a", [1000, 2000])])
    assert [(m.error, m.prompt_tokens) for m in measured] == [(None, None)] * 2
    assert summarise(measured, workers=1).decode_tokens_per_second is None
    assert endpoint.seen[1].prompt_tokens == pytest.approx(2000, rel=0.1)
    endpoint.streams = False
    whole = await replay(config(endpoint), [session("b", [1000])])
    assert whole[0].error is None
    assert whole[0].output_tokens == 20


async def held(request: web.Request) -> web.StreamResponse:
    """As the gateway holds a stream: headers first, comments, then the answer."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-tao-decision": "held"})
    await response.prepare(request)
    await response.write(b": held\n\n: held\n\n")
    await response.write(chunk({"choices": [{"delta": {"content": "tok"}, "finish_reason": "length"}]}))
    await response.write(b": later comments are no hold\n\ndata: [DONE]\n\n")
    return response


async def held_and_told(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "x-tao-decision": "held"})
    await response.prepare(request)
    await response.write(b": held\n\n: x-tao-hold-seconds: 17.25\n\n: other\n\n")
    await response.write(chunk({"choices": [{"delta": {"content": "tok"}, "finish_reason": "length"}]}))
    return response


async def test_the_hold_of_a_stream_whose_headers_came_early_is_told_or_seen(endpoint: FakeEndpoint) -> None:
    endpoint.faults.extend([held, held_and_told])
    seen, told = await replay(config(endpoint, concurrency=1), [session("a", [100]), session("b", [100])])
    assert seen.hold_seconds is not None
    assert seen.first_token_at is not None
    assert 0 < seen.hold_seconds <= seen.first_token_at - seen.arrived_at
    assert told.hold_seconds == 17.25


# Faults -----------------------------------------------------------------------------------------------------------


async def busy(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "full"}, status=429, headers={"Retry-After": "0"})


async def wrong(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "no such model"}, status=400)


async def broken(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "replica down"}, status=502, headers={"Retry-After": "0"})


async def hang(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await asyncio.Event().wait()
    return response


async def cut(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await response.write(chunk({"choices": [{"delta": {"content": "tok"}}]}))
    assert request.transport is not None
    request.transport.abort()
    return response


async def early_end(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await response.write(chunk({"choices": [{"delta": {"content": "tok"}}]}))
    return response


async def error_event(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await response.write(chunk({"error": {"message": "replica lost"}}))
    return response


async def nonsense(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await response.write(b"data: <html>\n\n")
    return response


async def nested(request: web.Request) -> web.StreamResponse:
    response = await start_stream(request)
    await response.write(b'data: {"other":' + b"[" * 60_000 + b"]" * 60_000 + b"}\n\n")
    return response


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        (busy, "http_429", True),
        (broken, "http_502", True),
        (cut, "stream_cut", True),
        (early_end, "stream_cut", True),
        (error_event, "stream_error", True),
        (drop, "disconnected", True),
        (wrong, "http_400", False),
        (nonsense, "bad_response", False),
        (nested, "bad_response", False),
        (hang, "timeout", False),
    ],
)
async def test_each_fault_has_its_kind(
    endpoint: FakeEndpoint, fault: object, kind: str, retryable: bool
) -> None:
    endpoint.faults.append(fault)  # type: ignore[arg-type]
    run = Replay(
        config(endpoint, retries_max=0, turn_wall_seconds_max=0.3),
        [session("a", [100, 200]), session("b", [100])],
    )
    await asyncio.wait_for(run.run(), 5.0)
    summary = summarise(run.measurements, workers=1)
    assert summary.errors == {kind: 1}
    assert summary.sessions_failed == 1
    assert list(run.failures) == [kind]

    endpoint.faults.append(fault)  # type: ignore[arg-type]
    again = await replay(config(endpoint, retries_max=1, turn_wall_seconds_max=0.3), [session("c", [100])])
    assert (again[0].error is None) == retryable
    assert again[0].retried == ((kind,) if retryable else ())


async def test_retries_are_bounded(endpoint: FakeEndpoint) -> None:
    endpoint.faults.extend([busy] * 10)
    measured = await replay(config(endpoint, retries_max=3), [session("a", [100])])
    assert measured[0].error == "http_429"
    assert measured[0].retried == ("http_429",) * 3
    assert len(endpoint.seen) == 4


async def test_an_endpoint_that_is_not_there_is_named() -> None:
    there_is_none = ReplayConfig(target="http://127.0.0.1:9", model="m", retries_max=0)
    measured = await replay(there_is_none, [session("a", [100])])
    assert measured[0].error == "connect"
    unreachable = Replay(there_is_none, [session("a", [100])])
    await unreachable.run()
    assert unreachable.failures == {"connect": "cannot connect to 127.0.0.1:9: Connection refused"}


async def test_without_a_model_list_the_error_says_what_to_do(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tao.replay.endpoint.STARTUP_WALL_SECONDS_MAX", 0.2)
    nobody = r"cannot connect to 127.0.0.1:9: Connection refused \(tried for 0.2 s\). Is the server running"
    with pytest.raises(EndpointError, match=nobody):
        await replay(ReplayConfig(target="http://127.0.0.1:9"), [session("a", [100])])
    with pytest.raises(EndpointError, match=r"status 404.* Or name the model"):
        await replay(ReplayConfig(target=endpoint.url + "/nowhere"), [session("a", [100])])


async def test_cancelling_closes_everything(endpoint: FakeEndpoint) -> None:
    endpoint.faults.extend([hang] * 4)
    run = Replay(config(endpoint, concurrency=4), [session(f"s{i}", [100]) for i in range(4)])
    task = asyncio.create_task(run.run())
    await asyncio.wait_for(endpoint.received(4), 5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5.0)
    assert run.measurements == []
    assert not [t for t in asyncio.all_tasks() if "Replay" in repr(t)]


async def test_the_sample_replays(endpoint: FakeEndpoint) -> None:
    sessions = list(read_trace(sample_path()))[:3]
    measured = await replay(config(endpoint, concurrency=3), sessions)
    assert not [m for m in measured if m.error]
    expected = {(s.session_id, i): t.prompt_tokens for s in sessions for i, t in enumerate(s.turns)}
    off = [abs((m.prompt_tokens or 0) / expected[m.session_id, m.turn_index] - 1) for m in measured]
    assert sorted(off)[len(off) * 9 // 10] < 0.02
    assert max(off) < 0.25  # a recorded agent that drops its reasoning cannot be followed exactly


@pytest.mark.parametrize(
    "wrong_value",
    [
        {"target": "localhost:8000"},
        {"concurrency": 0},
        {"speed": 0},
        {"speed": float("nan")},
        {"retries_max": -1},
    ],
)
def test_wrong_settings_are_named(wrong_value: dict[str, object]) -> None:
    settings: dict[str, object] = {"target": "http://127.0.0.1:1", **wrong_value}
    with pytest.raises(ValueError, match=next(iter(wrong_value))):
        ReplayConfig(**settings)  # type: ignore[arg-type]
