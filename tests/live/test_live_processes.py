"""Peers come up on loopback only or say why not, and nothing of them is left."""

import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live.__main__ import is_published, main, options_of
from benchmarks.live.engines import LiveConfig, estimate
from benchmarks.live.peers import BY_HAND, PEERS, chosen
from tests.engine.processes import ServiceError, answers, free_port, run_bounded, service

SERVER = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
REPLICAS = ["http://127.0.0.1:1001", "http://127.0.0.1:1002"]


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_told_its_replicas_and_loopback(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in BY_HAND:
        monkeypatch.setenv(variable, sys.executable)
    launch = PEERS[name].launch(REPLICAS, 5_120)
    assert set(REPLICAS) <= {url for argument in launch.command for url in argument.split(",")}
    assert launch.url.startswith("http://127.0.0.1:")
    assert launch.url.rpartition(":")[2] in launch.command
    if PEERS[name].needs_peers_venv:
        assert launch.command.count("127.0.0.1") == 2  # itself and its metrics


def test_peers_are_chosen_by_name_once() -> None:
    assert [peer.name for peer in chosen(["tao", "round-robin", "tao"])] == ["tao", "round-robin"]
    with pytest.raises(ValueError, match=r"no such peer: nginx \(there are round-robin"):
        chosen(["tao", "nginx"])


@pytest.mark.skipif(sys.platform != "linux", reason="watches a process that is not waited for here")
def test_a_service_answers_while_the_block_lasts_and_is_gone_after(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with service([*SERVER, str(port)], url, tmp_path / "log", ready_path="/") as running:
        assert answers(running.url)
        watched = os.pidfd_open(running.pid)
    try:
        assert select.select([watched], [], [], 5.0)[0]
        assert not answers(url)
    finally:
        os.close(watched)


def test_a_service_that_ends_while_starting_is_told_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(ServiceError, match=r"(?s)ended with code 1 while starting.*no such model"),
        service(command, f"http://127.0.0.1:{free_port()}", tmp_path / "log"),
    ):
        pytest.fail("it cannot be up")


def test_a_service_that_never_answers_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    started = service(command, f"http://127.0.0.1:{free_port()}", tmp_path / "log", start_seconds_max=0.5)
    with pytest.raises(ServiceError, match="did not answer"), started:
        pytest.fail("it cannot be up")


def test_a_client_is_bounded_in_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_bounded([sys.executable, "-c", "print('done')"], log, 20.0) == 0
    assert log.read_text() == "done\n"
    assert run_bounded([sys.executable, "-c", "import signal; signal.pause()"], log, 0.3) == 124


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"concurrency": 0}, "at least one session"),
        ({"window_tokens": 4_096}, "needs more than 4096"),
        ({"peak_tokens": 3_500}, "stay below 80 %"),
    ],
)
def test_a_load_that_cannot_run_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LiveConfig(**values)


def test_the_cost_is_told_beforehand() -> None:
    run, usual, worst = estimate(LiveConfig(), runs=40)
    assert run.sessions == LiveConfig().sessions
    assert run.peak_tokens < LiveConfig().window_tokens
    assert 1_200 < usual < worst


def test_bad_input_has_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routers", "--peers", "nginx"]) == 2
    assert "no such peer: nginx" in capsys.readouterr().err
    assert main(["engines", "--peers", "tao", "--sessions", "900"]) == 2
    assert "not 900" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        options_of(["--repeats", "0"])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "published"),
    [
        ([], True),
        (["routers", "--repeats", "9"], True),
        (["--repeats", "4"], False),
        (["--quick"], False),
        (["--peers", "tao"], False),
        (["--concurrency", "3"], False),
        (["--out", "elsewhere"], False),
    ],
)
def test_only_whole_runs_go_into_the_documentation(arguments: list[str], published: bool) -> None:
    assert is_published(options_of(arguments)) is published
