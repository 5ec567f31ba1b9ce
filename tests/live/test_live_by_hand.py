"""Peers that are installed by hand: asked for by name, told where they are, started so that they see what the others see."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.live import dynamo_stack
from benchmarks.live.__main__ import ENGINE_PEERS, ROUTER_PEERS, main
from benchmarks.live.engines import LiveConfig, _Run
from benchmarks.live.peers import BY_HAND, PEERS, chosen
from tao.cli import main as tao

REPLICAS = ["http://127.0.0.1:1001", "http://127.0.0.1:1002"]
NAMES = [name for name, peer in PEERS.items() if peer.by_hand is not None]


def test_they_are_left_out_unless_asked_for() -> None:
    assert NAMES == ["thunderagent", "thunderagent-ends-told", "dynamo"]
    assert not {*ENGINE_PEERS, *ROUTER_PEERS} & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("named", [None, "", "nowhere/at/all", "."])
def test_one_that_is_not_there_is_told_before_anything_starts(
    name: str, named: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = PEERS[name].by_hand
    assert variable is not None
    monkeypatch.delenv(variable, raising=False)
    if named is not None:
        monkeypatch.setenv(variable, named)
    assert main(["engines", "--peers", name]) == 2
    assert f"{variable} must name {BY_HAND[variable]}" in capsys.readouterr().err


def test_one_that_is_there_is_started_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "thunderagent"
    program.touch(mode=0o755)
    monkeypatch.setenv("TAO_LIVE_THUNDERAGENT", str(program))
    (peer,) = chosen(["thunderagent"])
    assert peer.launch(REPLICAS, 5_120).command[0] == str(program)


@pytest.mark.parametrize("name", PEERS)
def test_the_client_takes_what_it_is_told_for_a_peer(name: str, tmp_path: Path) -> None:
    run = _Run(LiveConfig(), PEERS[name], 0, tmp_path / "none.jsonl", 4.0, tmp_path / "run")
    command = run._client("http://127.0.0.1:9", "tiny", tmp_path / "out.json")
    start = command.index("tao") + 1
    result = CliRunner().invoke(tao, command[start:])
    assert result.exit_code == 2
    assert "none.jsonl" in result.output  # the trace is missing, the options are none to complain about
    assert set(PEERS[name].client_options) <= set(command)


def test_dynamo_listens_on_loopback_and_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    told = dynamo_stack.environment(str(tmp_path))
    hosts = {
        name: value for name, value in told.items() if name.startswith("DYN_") and name.endswith("_HOST")
    }
    assert set(hosts.values()) == {"127.0.0.1"}
    assert (told["HOME"], told["DYN_FILE_KV"]) == (str(tmp_path), str(tmp_path))
    assert "127.0.0.1" in dynamo_stack.frontend("1003", "32", 2)


def test_dynamos_processes_end_with_the_first_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "pid"
    waiting = f"import os, pathlib, signal; pathlib.Path({str(left)!r}).write_text(str(os.getpid())); signal.pause()"
    ending = f"import pathlib, sys, time\nwhile not pathlib.Path({str(left)!r}).exists(): time.sleep(0.01)\nsys.exit(3)"
    monkeypatch.setattr(dynamo_stack, "worker", lambda *_: [sys.executable, "-c", waiting])
    monkeypatch.setattr(dynamo_stack, "frontend", lambda *_: [sys.executable, "-c", ending])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert dynamo_stack.main(["1003", "32", "5120", REPLICAS[0]]) == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.read_text()), 0)
