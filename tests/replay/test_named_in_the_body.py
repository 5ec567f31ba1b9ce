"""Sessions named in the body and released by a call, as program-aware routers want it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tao.replay import Replay
from tests.replay.fake_endpoint import FakeEndpoint
from tests.replay.test_replay import config, session, wrong
from tests.replay.test_replay_cli import tao, trace_file

NAMED: dict[str, Any] = {"session_field": "program_id", "release_path": "/programs/release"}


async def test_each_request_has_the_id_in_its_body_and_the_end_is_told_once(endpoint: FakeEndpoint) -> None:
    run = Replay(config(endpoint, run_id="r1-", **NAMED), [session("a ö", [100, 200])])
    await run.run()
    assert [(seen.body["program_id"], seen.body["stream"]) for seen in endpoint.seen] == [
        ("r1-a ö", True)
    ] * 2
    assert endpoint.released == [({"program_id": "r1-a ö"}, 2)]
    assert run.failures == {}


async def test_a_session_that_fails_is_released_too(endpoint: FakeEndpoint) -> None:
    endpoint.faults.extend((None, wrong))
    await Replay(config(endpoint, **NAMED), [session("a", [100, 200, 300])]).run()
    assert endpoint.released == [({"program_id": "a"}, 2)]


async def test_neither_is_sent_unless_asked_for(endpoint: FakeEndpoint) -> None:
    await Replay(config(endpoint), [session("a", [100])]).run()
    assert "program_id" not in endpoint.seen[0].body
    assert endpoint.released == []


async def test_a_release_that_is_not_taken_is_told_and_fails_no_session(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    trace = trace_file(tmp_path, session("a", [100]))
    arguments = (
        "--speed",
        "500",
        "--json",
        "-",
        "--session-field",
        "program_id",
        "--release-path",
        "/nowhere",
    )
    code, out, err = await tao("replay", trace, "--target", endpoint.url, *arguments)
    assert (code, json.loads(out)["sessions_failed"]) == (0, 0)
    assert "release: turns failed 0, attempts repeated 0; the first said: status 404" in err


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"session_field": "messages"}, "'messages': each request has one already"),
        ({"release_path": "/programs/release"}, "a release needs the field"),
        ({"session_field": "program_id", "release_path": "release"}, "begins with /"),
    ],
)
def test_what_cannot_be_sent_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        config(FakeEndpoint(url="http://127.0.0.1:1"), **values)
