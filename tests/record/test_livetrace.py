"""Live traffic as a trace: what the events of a run say of its sessions, and nothing more."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tao.core.commands import CloseSession, Closing, Command, DispatchTurn, Reason, Refusal, RefuseTurn
from tao.core.events import (
    ClientLeft,
    Event,
    FirstToken,
    SessionEnded,
    ToolBegan,
    ToolCall,
    ToolsMeasured,
    TurnArrived,
    TurnFailed,
    TurnFinished,
    TurnKind,
    TurnProgress,
    Usage,
)
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.record.livetrace import TraceRecorder
from tao.traces import TraceError, TraceSession, read_trace
from tao.traces.writers.native import NativeFile

S = SessionId("public/private-project")
BASH = ToolCall("Bash", "make")


class Told:
    """A recorder, the events it is told, and the sessions it wrote."""

    def __init__(self, turns_max: int = 1000) -> None:
        self.sessions: list[TraceSession] = []
        self.recorder = TraceRecorder(self, turns_max)
        self.turns = 0

    def write(self, session: TraceSession) -> None:
        self.sessions.append(session)

    def tell(self, event: Event, *commands: Command) -> None:
        self.recorder.observe(event, commands)

    def arrive(
        self,
        at: float,
        session: SessionId = S,
        *,
        kind: TurnKind = TurnKind.MAIN,
        parent: SessionId | None = None,
        prompt_tokens: int = 1,
    ) -> TurnId:
        """A turn that is dispatched at once."""
        self.turns += 1
        turn = TurnId(f"t{self.turns}")
        self.tell(
            TurnArrived(at, turn, session, prompt_tokens, kind, parent=parent),
            DispatchTurn(turn, session, ReplicaId("r"), Reason.ROOM, 0.0),
        )
        return turn

    def finish(self, at: float, turn: TurnId, *tools: ToolCall, prompt: int = 1000) -> None:
        self.tell(TurnFinished(at, turn, Usage(prompt, 50, 900), tools))

    def turn(self, at: float, *tools: ToolCall, session: SessionId = S, prompt: int = 1000) -> None:
        """One that lasts a second."""
        self.finish(at + 1.0, self.arrive(at, session), *tools, prompt=prompt)

    def ended(self, session: SessionId = S, at: float = 1e6) -> TraceSession:
        """The session, written because it is closed."""
        self.tell(SessionEnded(at, session), CloseSession(session, Closing.ENDED))
        return self.sessions[-1]


def test_turns_tools_and_waits() -> None:
    told = Told()
    first = told.arrive(10.0)
    told.tell(FirstToken(10.25, first))
    told.finish(12.0, first, ToolCall("Bash", "make", 5.0, 60.0))
    told.turn(14.5, prompt=1500)
    told.turn(35.5, ToolCall("Read"), prompt=2000)
    session = told.ended()
    assert [(t.prompt_tokens, t.output_tokens, t.cached_tokens) for t in session.turns] == [
        (1000, 50, 900),
        (1500, 50, 900),
        (2000, 50, 900),
    ]
    one, two, three = session.turns
    assert (one.llm_seconds, one.ttft_seconds, one.stop) == (2.0, 0.25, "tool_use")
    assert one.tool is not None
    assert (one.tool.name, one.tool.command_head, one.tool.duration_seconds) == ("Bash", "make", 2.5)
    assert (one.tool.sleep_seconds, one.tool.declared_timeout_seconds) == (5.0, 60.0)
    assert (two.tool, two.user_gap_seconds) == (None, 20.0), "no tool was asked for: a human let it wait"
    assert (three.tool, three.user_gap_seconds) == (None, None), "it never came back"
    assert session.tokens == "measured"


def test_nothing_private_is_written() -> None:
    told = Told()
    told.turn(0.0, ToolCall("my_private_tool", "private.sh"))
    told.turn(2.0, ToolCall("mcp__private__ask"))
    told.turn(4.0, ToolCall("AskUserQuestion"))
    told.turn(6.0)
    session = told.ended()
    assert b"private" not in msgspec.json.encode(session)
    tools = [turn.tool for turn in session.turns if turn.tool is not None]
    assert [(tool.name, tool.command_head) for tool in tools] == [
        ("other", "other"),
        ("mcp", None),
        ("user_wait", None),
    ]


def test_parallel_tools_last_as_measured() -> None:
    told = Told()
    told.turn(0.0, BASH, ToolCall("Read"), ToolCall("Grep"))
    told.tell(ToolsMeasured(5.0, S, (("Read", 0.5), ("Bash", 3.0))))
    told.turn(5.0)
    (first, _) = told.ended().turns
    assert first.tool is not None
    assert (first.tool.duration_seconds, first.tool.parallel) == (4.0, 3)
    assert [(t.name, t.duration_seconds, t.duration_is_estimate) for t in first.tools] == [
        ("Bash", 3.0, False),
        ("Read", 0.5, False),
        ("Grep", 4.0, True),
    ]


def test_a_tool_that_the_client_names_counts() -> None:
    told = Told()
    told.turn(0.0)
    told.tell(ToolBegan(1.1, S, BASH))
    told.turn(3.0)
    tool = told.ended().turns[0].tool
    assert tool is not None
    assert (tool.name, tool.duration_seconds) == ("Bash", 2.0)


def test_what_the_engine_did_not_count_is_estimated() -> None:
    told = Told()
    turn = told.arrive(0.0, prompt_tokens=777)
    told.tell(TurnProgress(0.5, turn, 33))
    told.tell(TurnFinished(1.0, turn))
    session = told.ended()
    (only,) = session.turns
    assert (only.prompt_tokens, only.output_tokens) == (777, 33)
    assert (only.prompt_is_estimate, only.output_is_estimate, session.tokens) == (True, True, "estimated")


def test_side_turns_and_turns_that_came_to_nothing_are_left_out() -> None:
    told = Told()
    told.turn(0.0, BASH)
    told.finish(2.5, told.arrive(2.0, kind=TurnKind.SIDE))
    failed = told.arrive(4.0)
    told.tell(TurnFailed(5.0, failed, "status 500", retryable=True))
    told.tell(TurnFailed(5.5, failed, "status 500"))
    refused = told.arrive(6.0)
    told.tell(ClientLeft(6.5, refused), RefuseTurn(refused, S, Refusal.NO_REPLICA))
    told.turn(9.0)
    session = told.ended()
    assert len(session.turns) == 2
    assert session.turns[0].tool is not None
    assert session.turns[0].tool.duration_seconds == 3.0, "the session was back at 4, and had to ask again"
    assert told.recorder.side_turns == 1


def test_turns_at_the_same_time_follow_one_another_without_a_wait() -> None:
    told = Told()
    one, two = told.arrive(0.0), told.arrive(0.5)
    told.finish(2.0, one, BASH)
    told.finish(3.0, two, BASH)
    told.turn(7.0)
    first, second, _ = told.ended().turns
    assert [t.tool.duration_seconds if t.tool else None for t in (first, second)] == [0.0, 4.0]


def test_compaction_starts_a_new_prefix() -> None:
    told = Told()
    told.finish(1.0, told.arrive(0.0, kind=TurnKind.RESET))
    told.turn(2.0)
    told.finish(5.0, told.arrive(4.0, kind=TurnKind.RESET))
    assert [turn.prefix_reset for turn in told.ended().turns] == [False, False, True]


def test_sub_agents_name_their_parent_and_its_turn() -> None:
    told = Told()
    child = SessionId("public/private-project:a1")
    told.turn(0.0)
    told.turn(2.0, ToolCall("Task"))
    told.finish(5.0, told.arrive(4.0, child, parent=S))
    told.turn(8.0)
    small, large = told.ended(child), told.ended()
    assert (small.parent, small.parent_turn) == (large.session_id, 1)
    lonely = SessionId("public/other")
    told.finish(12.0, told.arrive(11.0, lonely, parent=S))
    assert told.ended(lonely).parent is None, "its parent is not there"


def test_what_prompts_have_in_common_makes_a_source() -> None:
    told = Told()
    for number, (digest, share) in enumerate([(b"a", 0.5), (b"a", 0.25), (b"b", 0.5), (b"", 0.0)]):
        told.recorder.prompt(TurnId(f"t{told.turns + 1}"), digest, share)
        told.turn(float(number), session=SessionId(f"s{number}"))
    one, other, third, bare = (told.ended(SessionId(f"s{number}")) for number in range(4))
    assert one.source == other.source != third.source
    assert (one.system_tokens, other.system_tokens, third.system_tokens) == (500, 500, 500)
    assert (bare.source, bare.system_tokens) == ("live", None)


def test_a_session_that_comes_back_after_it_was_closed_is_another() -> None:
    told = Told()
    told.turn(0.0)
    told.ended()
    told.turn(700.0)
    told.ended()
    one, two = told.sessions
    assert one.session_id != two.session_id
    assert two.start_offset_seconds == 700.0


def test_memory_is_bounded_and_what_is_open_is_written_at_the_end() -> None:
    told = Told(turns_max=10)
    names = [SessionId(f"s{number}") for number in range(5)]
    for at in range(40):
        told.turn(float(at), BASH, session=names[at % 5])
    assert told.recorder._turns <= 10
    told.recorder.close()
    told.recorder.close()
    assert sum(len(session.turns) for session in told.sessions) == 40
    assert len({session.session_id for session in told.sessions}) == len(told.sessions)
    assert not told.recorder._open


def test_late_events_of_unknown_turns_are_no_error() -> None:
    told = Told()
    events: Sequence[Event] = [
        FirstToken(0.0, TurnId("x")),
        TurnProgress(0.0, TurnId("x"), 3),
        TurnFinished(0.0, TurnId("x")),
        ToolBegan(0.0, S, BASH),
        ToolsMeasured(0.0, S, ()),
    ]
    for event in events:
        told.tell(event)
    turn = told.arrive(1.0)
    told.tell(SessionEnded(2.0, S), CloseSession(S, Closing.ENDED))
    told.finish(3.0, turn)
    told.recorder.close()
    assert told.sessions == []


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["live.jsonl", "live.jsonl.gz"])
def test_the_file_is_a_whole_trace_after_each_session(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    file = NativeFile(path)
    told = Told()
    told.turn(0.0, BASH)
    session = told.ended()
    for number in range(3):
        file.write(msgspec.structs.replace(session, session_id=f"s{number}"))
        assert [found.session_id for found in read_trace(path)] == [f"s{n}" for n in range(number + 1)]
    file.close()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text("precious")
    with pytest.raises(TraceError, match="is there already; name another file"):
        NativeFile(path)
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        NativeFile(tmp_path / "missing" / "live.jsonl")
    assert path.read_text() == "precious"


def test_an_empty_file_that_a_killed_writer_left_is_taken(tmp_path: Path) -> None:
    """Otherwise whoever starts it again with the same options would have to clean up first."""
    path = tmp_path / "live.jsonl"
    path.touch()
    NativeFile(path).close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_sessions_is_removed(tmp_path: Path) -> None:
    NativeFile(tmp_path / "live.jsonl").close()
    assert list(tmp_path.iterdir()) == []
