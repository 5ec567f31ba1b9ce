"""A replay that tells the gateway of its tools, and tools made slower by a delay of their session."""

from click.testing import CliRunner
from gateway_kit import emulated, fronted
from structlog.testing import capture_logs

from tao.cli import main
from tao.core.events import ToolBegan, ToolExpected, TurnArrived, TurnFinished
from tao.replay import Replay, ReplayConfig, ToldOfTools, replay
from tao.traces import TraceSession, TraceTool, TraceTurn
from tao.traces.delay import fixed_delay_seconds
from tests.replay.fake_endpoint import FakeEndpoint

SPEED = 20.0
PHASE = TraceTool(name="Bash", command_head="make", duration_seconds=4.0, parallel=2)
BESIDE = TraceTool(name="Read", duration_seconds=1.0)
AGENT = TraceSession(
    session_id="an agent",
    turns=(
        TraceTurn(prompt_tokens=800, output_tokens=10, tool=PHASE, tools=(PHASE, BESIDE)),
        TraceTurn(prompt_tokens=1200, output_tokens=10),
    ),
)


async def test_an_oracle_tells_names_and_when_the_last_tool_returns() -> None:
    with capture_logs():
        async with emulated(speed=SPEED) as replica, fronted(replica.url, speed=SPEED) as front:
            config = ReplayConfig(
                front.url, speed=SPEED, told_of_tools=ToldOfTools.RETURNS, tool_delay_seconds=(2.0, 2.0)
            )
            run = Replay(config, [AGENT])
            await run.run()
            assert run.reports_failed == 0
            began = [(event.tool.name, event.tool.command_head) for event in front.events(ToolBegan)]
            assert began == [("Bash", "make"), ("Read", "")]
            expected = front.events(ToolExpected)[-1]
            ended, back = front.events(TurnFinished)[0].at, front.events(TurnArrived)[1].at
            assert ended < expected.at < ended + 3.0
            assert 6.0 <= expected.return_at - ended < 9.0
            assert back - ended >= 6.0


async def test_what_the_endpoint_does_not_take_is_counted_and_costs_nothing(endpoint: FakeEndpoint) -> None:
    run = Replay(ReplayConfig(endpoint.url, speed=1000.0, told_of_tools=ToldOfTools.NAMES), [AGENT])
    await run.run()
    assert [turn.error for turn in run.measurements] == [None, None]
    assert run.reports_failed == 2


async def test_nothing_is_told_unless_asked_for(endpoint: FakeEndpoint) -> None:
    run = Replay(ReplayConfig(endpoint.url, speed=1000.0), [AGENT])
    await run.run()
    assert run.reports_failed == 0


async def test_a_delay_makes_each_wait_longer(endpoint: FakeEndpoint) -> None:
    for span, least in ((None, 4.0), ((30.0, 50.0), 34.0)):
        config = ReplayConfig(endpoint.url, speed=100.0, tool_delay_seconds=span)
        first, second = await replay(config, [AGENT])
        assert second.arrived_at - first.finished_at >= least


def test_a_session_has_one_delay() -> None:
    drawn = [fixed_delay_seconds(f"s{number}", (1.0, 5.0), 7) for number in range(50)]
    assert drawn == [fixed_delay_seconds(f"s{number}", (1.0, 5.0), 7) for number in range(50)]
    assert all(1.0 <= seconds <= 5.0 for seconds in drawn)
    assert len(set(drawn)) == 50
    assert drawn[0] != fixed_delay_seconds("s0", (1.0, 5.0), 8)


def test_a_span_that_cannot_be_meant_is_refused() -> None:
    for span in ("5:1", "x", "-1:2", "1:inf"):
        ran = CliRunner().invoke(main, ["replay", "sample", "--target", "http://a:1", "--tool-delay", span])
        assert ran.exit_code == 2
        assert "give seconds as MIN:MAX" in ran.output
