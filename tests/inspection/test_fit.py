"""`tao profile fit`: an emulated engine gives its own constants back, within the bounds that were announced."""

import asyncio
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_engine import fake_engine, says, usage
from gateway_kit import emulated

from tao.cli.profile import command
from tao.enginemodel import load_profile
from tao.inspection import EngineClient, FitError, FitLimits, fit_engine, planned_load, profile_text
from tao.inspection.fit import ATTEMPTS_MAX, Load, Step, _Run
from tao.inspection.texts import Prompts

SLOW = replace(
    load_profile("qwen3-32b-tp2-h100"),
    name="slow",
    max_model_tokens=2_048,
    decode_base_ms=((1, 30.0), (4, 45.0)),
    decode_ms_per_context_token=0.02,
    prefill_fixed_ms=20.0,
    prefill_ms_per_token=0.4,
    prefill_ms_per_token_squared=0.0,
)
"""Slow enough that a busy machine adds little."""
LIMITS = FitLimits(
    tokens_max=6_000, seconds_max=60.0, batches=(1, 4), prompt_tokens=(64, 256, 1024), repeats=2
)


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, command, list(arguments))


@pytest.mark.slow
async def test_an_emulated_engine_gives_its_constants_back() -> None:
    async with (
        emulated(profile=SLOW, speed=1.0, kv_tokens=50_000) as replica,
        EngineClient(replica.url) as client,
    ):
        fit = await fit_engine(client, LIMITS, model=None, kv_tokens=None, seed=1)
        assert (fit.kv_tokens, fit.max_model_tokens) == (50_000, 2_048)
        assert fit.tokens_sent <= LIMITS.tokens_max
        for tokens in (128, 1000):
            told = fit.prefill.fixed_ms + fit.prefill.ms_per_token * tokens
            told += fit.prefill.ms_per_token_squared * tokens * tokens / 2
            assert told == pytest.approx(SLOW.prefill_ms(tokens), rel=0.15)
        assert dict(fit.decode_base_ms) == pytest.approx({1: 30.0, 4: 45.0}, rel=0.15)
        assert fit.decode_ms_per_context_token == pytest.approx(0.02, rel=0.3)


@pytest.mark.slow
async def test_the_command_writes_a_profile_that_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    async with emulated(speed=4.0) as replica:
        result = await run(
            *(
                "fit",
                replica.url,
                "--name",
                "mine",
                "--out",
                str(out),
                "--tokens",
                "4000",
                "--batch-max",
                "2",
            ),
            *("--prompt-max", "256", "--speed", "4", "--max-running", "64"),
        )
    assert result.exit_code == 0, result.output
    assert result.output.startswith("tao profile fit: at most 4,000 tokens and 180 s"), (
        "said before it starts"
    )
    profile = load_profile(str(out))
    assert (profile.name, profile.kv_tokens, profile.max_running) == ("mine", 200_000, 64)
    assert [batch for batch, _ in profile.decode_base_ms] == [1, 2]
    assert all(source for _, source in profile.sources)


def test_how_many_run_together_is_not_told_by_streams_that_are_too_short() -> None:
    run = _Run(EngineClient("http://127.0.0.1:1"), "m", Prompts(1), ends_at=0.0, scale=1_000_000.0)
    run._not_together(4, [Step(1, 48.0, 1600.0)])
    told = [run.running_max]
    assert "takes 51 ms by the clock, too short to tell whether 4 run together" in run.remarks[0]
    run._not_together(8, [Step(1, 48.0, 1600.0), Step(4, 192.0, 12000.0)])
    assert [*told, run.running_max] == [None, 4]
    assert run.remarks[1] == "8 requests did not run together: at most about 4 do"


@pytest.mark.parametrize(("in_one_piece", "measured"), [(ATTEMPTS_MAX - 1, True), (ATTEMPTS_MAX, False)])
async def test_a_single_stream_that_comes_in_one_piece_is_asked_for_again(
    in_one_piece: int, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _Run(EngineClient("http://127.0.0.1:1"), "m", Prompts(1), ends_at=inf, scale=1_000.0)
    answers = [None] * in_one_piece + [Step(1, 48.0, 13.5)]

    async def together(_: _Run, batch: int) -> Step | None:
        assert batch == 1
        return answers.pop(0)

    monkeypatch.setattr(_Run, "_together", together)
    load = Load((64, 256), (1,), 1)
    if measured:
        assert await run.decode(load) == [Step(1, 48.0, 13.5)]
    else:
        with pytest.raises(FitError, match="came in one piece"):
            await run.decode(load)


@pytest.mark.slow
@pytest.mark.parametrize(("speed", "running_max"), [(1.0, 2), (6.0, None)])
async def test_an_engine_that_runs_two_at_once(speed: float, running_max: int | None) -> None:
    narrow = replace(load_profile("qwen3-32b-tp2-h100"), max_running=2)
    limits = replace(LIMITS, batches=(1, 2, 8), prompt_tokens=(64, 256), repeats=1)
    async with emulated(profile=narrow, speed=speed) as replica, EngineClient(replica.url) as client:
        fit = await fit_engine(client, limits, model=None, kv_tokens=None, seed=1, speed=speed)
    assert fit.running_max == running_max
    told = profile_text(fit, "mine")
    assert f"max_running = {running_max or 256}\n" in told
    assert f"max_running: {'measured' if running_max else 'not measured'}" in told


def test_the_load_keeps_within_its_bounds() -> None:
    for tokens_max in (1_600, 3_000, 10_000, 100_000):
        load = planned_load(FitLimits(tokens_max=tokens_max), 100_000)
        assert load.tokens <= tokens_max
        assert len(load.prompt_tokens) >= 2
        assert load.batches[0] == 1
    assert planned_load(FitLimits(), 1_000).prompt_tokens == (64, 256)
    with pytest.raises(FitError, match="too few"):
        planned_load(FitLimits(tokens_max=300), 100_000)
    with pytest.raises(FitError, match="too few"):
        planned_load(FitLimits(), 200)


async def test_an_engine_that_does_not_tell_its_capacity_or_counts() -> None:
    async with (
        fake_engine(page="", default=says("a b c d e f", counts={})) as engine,
        EngineClient(engine.url) as client,
    ):
        with pytest.raises(FitError, match="--kv-tokens"):
            await fit_engine(client, FitLimits(), model=None, kv_tokens=None, seed=1)
        with pytest.raises(FitError, match="no usage"):
            await fit_engine(client, FitLimits(), model=None, kv_tokens=10_000, seed=1)


async def test_an_engine_that_answers_in_one_piece() -> None:
    async with (
        fake_engine(default=says("a", counts=usage(100, 1))) as engine,
        EngineClient(engine.url) as client,
    ):
        with pytest.raises(FitError, match="in one piece"):
            await fit_engine(client, FitLimits(), model=None, kv_tokens=10_000, seed=1)


@pytest.mark.parametrize(
    ("arguments", "says_what"),
    [
        (["fit", "http://127.0.0.1:1"], "cannot connect"),
        (["fit", "127.0.0.1:1"], "write it like"),
        (["fit", "http://127.0.0.1:1", "--name", "Not Good"], "lower-case letters"),
        (["fit", "http://127.0.0.1:1", "--tokens", "5"], "--tokens"),
    ],
)
async def test_bad_input(arguments: list[str], says_what: str) -> None:
    result = await run(*arguments)
    assert result.exit_code == 2
    assert says_what in result.output


async def test_the_profiles_are_listed() -> None:
    assert "qwen3-32b-tp2-h100" in (await run("list")).output.split()
