"""`tao simulate` from the outside: its table, its JSON, its exit codes, and that it repeats to the byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tao.cli import main
from tao.policies import make_policy

ROW = {
    "policy",
    "concurrency",
    "replicas",
    "profile",
    "seed",
    "sessions",
    "latency_seconds",
    "ttft_seconds",
    "tool_end_to_first_token_seconds",
    "hold_seconds",
    "decode_tokens_per_second",
    "makespan_seconds",
    "prefix_hit_rate",
    "interrupts",
    "migrations",
    "forced_placements",
    "planner",
}
SMALL = ("--sessions", "8", "--kv-tokens", "60000", "--replicas", "2", "--processes", "1")


def tao(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


def test_one_row_for_each_policy_and_concurrency(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = tao(
        "--policy", "tao,round-robin", "--concurrency", "4,8", "--seed", "5", "--json", str(out), *SMALL
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())["runs"]
    assert [(r["policy"], r["concurrency"]) for r in rows] == [
        ("tao", 4),
        ("round-robin", 4),
        ("tao", 8),
        ("round-robin", 8),
    ]
    for row in rows:
        assert row.keys() >= ROW
        assert (row["replicas"], row["seed"], row["sessions"]) == (2, 5, 8)
        assert row["profile"] == "qwen3-32b-tp2-h100"
        for name in ("latency_seconds", "ttft_seconds", "tool_end_to_first_token_seconds"):
            assert row[name].keys() >= {"mean", "p50", "p90", "p99"}
        assert row["hold_seconds"].keys() >= {"mean", "p99", "max"}
        assert row["planner"].keys() == {"plans", "seconds", "fallbacks"}
    assert rows[1]["migrations"] > 0  # round-robin moves sessions about
    assert "round-robin" in result.output
    assert "latency" in result.output


def test_several_traces_and_a_floor(tmp_path: Path) -> None:
    trace = tmp_path / "one.jsonl"
    trace.write_text('{"session_id":"mine","turns":[{"prompt_tokens":500,"output_tokens":20}]}\n')
    result = tao(
        "--trace", "sample", str(trace), "--policy", "sticky-least-loaded", "--concurrency", "16", "--floor",
        "--processes", "1", "--kv-tokens", "60000", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["runs"][0]["sessions"] == document["floors"][0]["sessions"]
    assert document["runs"][0]["traces"] == ["sample", str(trace)]
    assert document["floors"][0]["latency_seconds"]["mean"] <= document["runs"][0]["latency_seconds"]["mean"]


def test_arrivals_by_chance() -> None:
    result = tao("--arrival-rate", "0.5", "--policy", "tao", "--json", "-", *SMALL)
    (row,) = json.loads(result.stdout)["runs"]
    assert (row["concurrency"], row["arrival_rate_per_second"]) == (None, 0.5)


def test_faults_from_the_command_line() -> None:
    result = tao("--faults", "--policy", "tao", "--seed", "2", "--json", "-", *SMALL)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runs"][0]["faults"]


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    given = Path(__file__).parents[2] / "src/tao/enginemodel/profiles/qwen3-32b-tp2-h100.toml"
    mine = tmp_path / "mine.toml"
    mine.write_text(given.read_text().replace("qwen3-32b-tp2-h100", "mine"))
    result = tao("--profile", str(mine), "--policy", "round-robin", "--json", "-", *SMALL)
    assert json.loads(result.stdout)["runs"][0]["profile"] == "mine"


def test_host_memory_behind_the_caches_spares_prefill() -> None:
    tight = ("--policy", "round-robin", "--kv-tokens", "40000", "--json", "-", *SMALL)
    (without,) = json.loads(tao(*tight).stdout)["runs"]
    (offloading,) = json.loads(tao("--offload-tokens", "400000", *tight).stdout)["runs"]
    assert "reloaded_tokens" not in without
    assert offloading["reloaded_tokens"] > 0
    assert offloading["prefix_hit_rate"] > without["prefix_hit_rate"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "tau"), "did you mean 'tao'"),
        (("--policy", ","), "names no policy"),
        (("--profile", "h900"), "unknown profile"),
        (("--trace", "nowhere.jsonl"), "cannot be read"),
        (("--concurrency", "4,x"), "numbers from 1 to"),
        (("--concurrency", "0"), "numbers from 1 to"),
        (("--concurrency", "9" * 30), "numbers from 1 to"),
        (("--arrival-rate", "nan"), "numbers from 1e-06 to"),
        (("--arrival-rate", "1e-310"), "numbers from 1e-06 to"),
        (("--fitted", "9" * 30), "--fitted"),
        (("--concurrency", "4", "--arrival-rate", "1"), "give one of them"),
        (("--tool-delay", "5"), "MIN:MAX"),
        (("--tool-delay", "9:2"), "MIN:MAX"),
        (("--hold-max", "0"), "not in the range 0<x"),
        (("--hold-max", "nan"), "not a number"),
        (("--human-wait-max", "-1"), "not in the range 0<=x"),
        (("--human-wait-max", "nan"), "not a number"),
        (("--system-tokens", "-1"), "not in the range 0<=x"),
        (("--tool-delay", "1e300:1e308"), "MIN:MAX"),
        (("--kv-tokens", "16"), "takes more than 16 tokens"),
        (("--max-prompt-tokens", "1"), "nothing is left"),
        (("--offload-reload-tokens-per-second", "5"), "needs --offload-tokens"),
        (("--offload-tokens", "-1"), "offload-tokens"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], says: str) -> None:
    result = tao(*arguments, "--processes", "1")
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_bad_lines_are_refused_or_counted(tmp_path: Path) -> None:
    trace = tmp_path / "bad.jsonl"
    good = '{"session_id":"%s","turns":[{"prompt_tokens":500,"output_tokens":20}]}\n'
    trace.write_text(good % "a" + "nonsense\n" + good % "b")
    refused = tao("--trace", str(trace), "--policy", "tao", "--processes", "1")
    assert refused.exit_code == 2
    assert "bad.jsonl:2" in refused.output
    counted = tao("--trace", str(trace), "--policy", "tao", "--processes", "1", "--skip-bad-lines")
    assert counted.exit_code == 0
    assert "bad lines skipped: 1" in counted.output


def in_a_process(hash_seed: str, *arguments: str) -> bytes:
    command = [sys.executable, "-m", "tao", "simulate", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100).stdout


@pytest.mark.slow
def test_the_figures_repeat_to_the_byte_whatever_the_hash_seed_and_the_processes() -> None:
    arguments = (
        "--policy", "tao,thunderagent,round-robin", "--sessions", "12", "--concurrency", "8", "--kv-tokens", "50000",
        "--replicas", "2", "--seed", "3", "--shuffle", "--tool-delay", "1:5", "--system-tokens", "900",
    )  # fmt: skip
    first = in_a_process("0", *arguments, "--json", "-", "--processes", "1")
    assert first == in_a_process("1", *arguments, "--json", "-", "--processes", "2")
    assert first == in_a_process("4242", *arguments, "--json", "-", "--processes", "1")
    assert json.loads(first)["runs"][0]["interrupts"] > 0  # there was something to decide


@pytest.mark.slow
def test_faults_repeat_to_the_byte_whatever_the_hash_seed() -> None:
    arguments = ("--faults", "--policy", "tao", "--sessions", "10", "--kv-tokens", "60000", "--replicas", "2")
    outputs = {in_a_process(hash_seed, *arguments, "--json", "-") for hash_seed in ("1", "2")}
    assert len(outputs) == 1


def test_joint_decisions_are_kept_for_tao_plan(tmp_path: Path) -> None:
    result = tao("--policy", "tao,tao-bfd", "--record-snapshots", str(tmp_path), "--concurrency", "8", *SMALL)
    assert result.exit_code == 0, result.output
    folders = sorted(folder.name for folder in tmp_path.iterdir())
    assert folders == ["tao-bfd-w8-seed0", "tao-w8-seed0"]
    first = next(iter(sorted((tmp_path / "tao-w8-seed0").iterdir())))
    planned = CliRunner().invoke(main, ["plan", str(first), "--json"])
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["status"] == "optimal"


class Broken:
    """A policy with a defect."""

    name = "broken"

    def __init__(self) -> None:
        self._real = make_policy("round-robin")

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def place(self, *args: object) -> object:
        raise KeyError("a defect")


def test_a_run_that_breaks_off_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    result = tao("--policy", "test_simulate_cli:Broken", "--concurrency", "4", *SMALL)
    assert result.exit_code == 1, result.output
    assert "a run broke off" in result.output
    assert "a defect" in result.output
    assert "--policy test_simulate_cli:Broken --concurrency 4 --seed 0" in result.output
