"""The log: what is written is read back equal; what is no log is named by file and line; a replay finds differences."""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from core_kit import World
from hypothesis import given
from hypothesis import strategies as st
from virtual_driver import Run, VirtualDriver, scripted_sessions

from tao.core import SchedulerSettings, commands, events
from tao.core.commands import Command, DispatchTurn, Interruption, InterruptSession, StopTurn
from tao.core.events import Event, PrefixNode, ReplicaJoined, TurnArrived, WakeUp
from tao.core.ids import TurnId
from tao.policies import make_policy
from tao.record.conformance import replay_log
from tao.record.log import (
    COMMAND_KINDS,
    EVENT_KINDS,
    Entry,
    LogError,
    LogWriter,
    command_digest,
    read_log,
)

SETTINGS = SchedulerSettings(hold_seconds_max=77.5, sessions_max=900)


def run_of(policy: str) -> Run:
    driver = VirtualDriver(make_policy(policy), {"a": 20_000, "b": 12_000}, SETTINGS)
    driver.lose(9.0, "b", back_after=4.0, capacity_tokens=12_000)
    return driver.run(scripted_sessions(20, seed=7, every_seconds=0.4))


def written(path: Path, log: Sequence[tuple[Event, Sequence[Command]]], policy: str = "tao") -> Path:
    with LogWriter(path, policy, SETTINGS) as writer:
        for event, answer in log:
            writer.observe(event, answer)
    return path


# --- round trip --------------------------------------------------------------------------------------------------------


def test_every_kind_of_event_and_command_has_its_name_in_the_log() -> None:
    def kinds(module: object, base: type) -> set[type]:
        return {
            v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base) and v is not base
        }

    assert set(EVENT_KINDS.values()) == kinds(events, Event)
    assert set(COMMAND_KINDS.values()) == kinds(commands, Command)


@pytest.mark.parametrize("policy", ["tao", "tao-paper", "round-robin"])
def test_a_run_is_read_back_equal(tmp_path: Path, policy: str) -> None:
    log = run_of(policy).log
    recorded = read_log(written(tmp_path / "run.jsonl", log, policy))
    assert (recorded.policy, recorded.settings) == (policy, SETTINGS)
    entries = list(recorded)
    assert [(e.event, list(e.commands)) for e in entries] == log
    assert [e.line for e in entries] == list(range(2, len(log) + 2))
    assert list(recorded) == entries  # it can be read again


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that the core's events and commands are made of."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        int: st.integers(0, 2**62),
        float: st.floats(min_value=0, allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        type(None): st.none(),
    }
    if hint in plain:
        return plain[hint]
    if hasattr(hint, "__supertype__"):  # a NewType
        return values(hint.__supertype__)
    if hint is PrefixNode:
        return st.builds(PrefixNode, values(str), st.integers(0, 2**62))
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        made = {field.name: values(hints[field.name]) for field in fields(hint)}
        if hint is ReplicaJoined:
            made["slots"] = st.none() | st.integers(1, 2**62)  # it refuses none at all
        if hint is TurnArrived:  # it refuses a key twice
            pieces = st.lists(values(PrefixNode), max_size=3, unique_by=lambda piece: piece.key)
            made["shared_prefix"] = pieces.map(tuple)
        return st.builds(hint, **made)
    inner = get_args(hint)
    if get_origin(hint) is Mapping:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if get_origin(hint) is tuple and inner[-1] is Ellipsis:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*map(values, inner))
    if inner:
        return st.one_of(*map(values, inner))
    return st.sampled_from(hint)  # an enumeration


EVENTS = st.one_of(*map(values, EVENT_KINDS.values()))
COMMANDS = st.one_of(*map(values, COMMAND_KINDS.values()))


@given(st.lists(st.tuples(EVENTS, st.lists(COMMANDS, max_size=3)), max_size=4))
def test_anything_that_can_be_said_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[Event, list[Command]]]
) -> None:
    path = written(tmp_path_factory.mktemp("log") / "any.jsonl", log)
    assert [(e.event, list(e.commands)) for e in read_log(path)] == log


def test_a_line_is_json_that_people_can_read(tmp_path: Path) -> None:
    world = World(make_policy("tao"), a=10_000)
    log: list[tuple[Event, list[Command]]] = [(WakeUp(1.5), []), (WakeUp(2.0), world.arrive("s", "t1"))]
    head, quiet, busy = written(tmp_path / "run.jsonl", log).read_text().splitlines()
    assert json.loads(head)["policy"] == "tao"
    assert json.loads(head)["settings"]["hold_seconds_max"] == 77.5
    assert json.loads(quiet) == {"event": {"WakeUp": {"at": 1.5}}}
    assert list(json.loads(busy)["commands"][1]["DispatchTurn"]) == [f.name for f in fields(DispatchTurn)]


# --- writing -----------------------------------------------------------------------------------------------------------


def test_a_file_of_the_caller_stays_open(tmp_path: Path) -> None:
    target = io.BytesIO()
    with LogWriter(target, "tao", SETTINGS) as writer:
        writer.observe(WakeUp(1.0), [])
    assert not target.closed
    assert target.getvalue().count(b"\n") == 2


def test_flush_makes_it_readable_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with LogWriter(path, "tao", SETTINGS) as writer:
        writer.observe(WakeUp(1.0), [])
        writer.flush()
        assert [entry.event for entry in read_log(path)] == [WakeUp(1.0)]


def test_little_is_kept_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with LogWriter(path, "tao", SETTINGS) as writer:
        for _ in range(10_000):
            writer.observe(WakeUp(1.0), [])
        assert path.stat().st_size > 10_000 * 20 - 2 * 65_536


def test_what_is_written_is_whole_lines_at_any_time(tmp_path: Path) -> None:
    """A writer that is killed leaves nothing half: the file is a log at each moment."""
    path = tmp_path / "run.jsonl"
    with LogWriter(path, "tao", SETTINGS) as writer:
        sizes = set()
        for number in range(5_000):
            writer.observe(WakeUp(float(number)), [])
            size = path.stat().st_size
            if size and size not in sizes:
                sizes.add(size)
                assert path.read_bytes().endswith(b"\n")
                assert len(list(read_log(path))) > 0
        assert len(sizes) >= 2


def test_a_disk_that_is_full_for_a_while_costs_nothing_and_halves_no_line() -> None:
    class Disk(io.RawIOBase):
        """Takes as much as there is room for."""

        def __init__(self) -> None:
            self.held = b""
            self.room = 0

        def write(self, content: Any) -> int:
            taken = bytes(content[: min(self.room, 7)])
            if not taken:
                raise OSError(28, "No space left on device")
            self.room -= len(taken)
            self.held += taken
            return len(taken)

    disk = Disk()
    writer = LogWriter(disk, "tao", SETTINGS)  # type: ignore[arg-type]
    writer.observe(WakeUp(1.0), [])
    for room in (0, 25, 0, 10_000):
        disk.room = room
        with suppress(OSError):
            writer.flush()
        writer.observe(WakeUp(2.0), [])
    writer.close()
    head, *entries = disk.held.splitlines()
    assert json.loads(head)["log"] == 1
    assert [json.loads(entry)["event"]["WakeUp"]["at"] for entry in entries] == [1.0, 2.0, 2.0, 2.0, 2.0]


# --- bad logs ----------------------------------------------------------------------------------------------------------

HEAD = b'{"log":1,"tao":"0.1.0","policy":"tao","settings":{}}\n'


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", r"bad.jsonl, line 1: .*begins with its version, policy and settings"),
        (b"PK\x03\x04", r"bad.jsonl, line 1: "),
        (b"[1]\n", r"bad.jsonl, line 1: "),
        (b'{"log":2}\n', r"bad.jsonl, line 1: not a log of format 1: its `log` is 2"),
        (b'{"id":"s"}\n', r"bad.jsonl, line 1: not a log of format 1: its `log` is None"),
        (b'{"log":1,"tao":"0","settings":{}}\n', r"bad.jsonl, line 1: 'policy' is missing"),
        (b'{"log":1,"tao":"0","policy":"tao","settings":{"hold":1}}\n', r"line 1: settings: .*'hold'"),
        (b'{"log":1,"tao":"0","policy":"tao","settings":[]}\n', r"line 1: settings: "),
        (
            b'{"log":1,"tao":"0","policy":"tao","settings":{"sessions_max":0}}\n',
            r"line 1: settings: sessions_max must be at least 1",
        ),
    ],
)
def test_a_head_that_is_none(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(head)
    with pytest.raises(LogError, match=message):
        read_log(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nowhere\.jsonl: No such file or directory"):
        read_log(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense\n", r"bad.jsonl, line 3: "),
        (b"\n", r"bad.jsonl, line 3: "),
        (b'{"event":{"WakeUp":{"at":1.0', r"line 3: .*cut short: was its writer killed"),
        (b'{"event":{"Woke":{"at":1.0}}}\n', r"line 3: unknown event 'Woke'; known are TurnArrived, "),
        (b'{"event":{"WakeUp":{}}}\n', r"line 3: WakeUp: .*`at`"),
        (b'{"event":{"WakeUp":{"at":"soon"}}}\n', r"line 3: WakeUp: "),
        (b'{"event":{}}\n', r"line 3: one kind of event is needed, not \[\]"),
        (
            b'{"event":{"WakeUp":{"at":1},"Woke":{}}}\n',
            r"one kind of event is needed, not \['WakeUp', 'Woke'\]",
        ),
        (b'{"event":{"WakeUp":{"at":1}},"command":[]}\n', r"line 3: .*`command`"),
        (b'{"event":{"WakeUp":{"at":1}},"commands":[{"Go":{}}]}\n', r"line 3: unknown command 'Go'"),
        (
            b'{"event":{"TurnProgress":{"at":1,"turn":"t","output_tokens":-4}}}\n',
            r"line 3: TurnProgress: turn t: negative output_tokens -4",
        ),
    ],
)
def test_a_line_that_is_no_entry(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(HEAD + b'{"event":{"WakeUp":{"at":1}}}\n' + line)
    entries = iter(read_log(path))
    assert next(entries) == Entry(2, WakeUp(1.0), ())
    with pytest.raises(LogError, match=message):
        next(entries)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_reader_crash(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("log") / "junk.jsonl"
    path.write_bytes(HEAD + junk)
    with suppress(LogError):
        list(read_log(path))


# --- replay ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["tao", "tao-paper", "round-robin", "sticky-least-loaded", "tao-bfd"])
def test_a_recorded_run_gives_the_same_commands_again(tmp_path: Path, policy: str) -> None:
    run = run_of(policy)
    recorded = read_log(written(tmp_path / "run.jsonl", run.log, policy))
    assert replay_log(recorded, make_policy(recorded.policy), recorded.settings) == []
    assert command_digest(c for e in recorded for c in e.commands) == command_digest(run.commands)


def gave_way(command: Command) -> bool:
    return isinstance(command, InterruptSession) and command.reason is Interruption.GAVE_WAY


@pytest.mark.parametrize("policy", ["aimd"])
def test_a_log_that_does_not_tell_who_gave_way_can_still_be_replayed(tmp_path: Path, policy: str) -> None:
    """As logs were before it was told. Anything else that is missing is a difference as ever."""
    log = run_of(policy).log
    assert any(gave_way(command) for _, commands in log for command in commands), "nobody gave way"
    older = [(event, [c for c in commands if not gave_way(c)]) for event, commands in log]
    recorded = read_log(written(tmp_path / "run.jsonl", older, policy))
    assert replay_log(recorded, make_policy(policy), SETTINGS) == []
    at = next(n for n, (_, commands) in enumerate(older) if commands)
    older[at] = (older[at][0], [])
    cut = read_log(written(tmp_path / "cut.jsonl", older, policy))
    assert [found.recorded.line for found in replay_log(cut, make_policy(policy), SETTINGS)] == [at + 2]


def test_another_policy_or_other_settings_are_found_out(tmp_path: Path) -> None:
    recorded = read_log(written(tmp_path / "run.jsonl", run_of("tao").log))
    other_policy = replay_log(recorded, make_policy("round-robin"), SETTINGS)
    assert 0 < len(other_policy) <= 10
    assert "\n  then AdmitSession" in str(other_policy[0])
    assert "\n  now  DispatchTurn" in str(other_policy[0])
    assert replay_log(recorded, make_policy("tao"), SchedulerSettings(hold_seconds_max=1.0))


def test_a_command_that_somebody_changed_is_shown_with_its_line(tmp_path: Path) -> None:
    log = run_of("tao").log
    at = next(n for n, (_, answer) in enumerate(log) if len(answer) == 2)
    log[at] = (log[at][0], log[at][1][::-1])
    recorded = read_log(written(tmp_path / "run.jsonl", log))
    [difference] = replay_log(recorded, make_policy("tao"), SETTINGS)
    assert difference.recorded.line == at + 2
    assert str(difference).startswith(f"line {at + 2}: ")
    assert str(difference).endswith("the same commands in another order")


def test_differences_are_bounded(tmp_path: Path) -> None:
    recorded = read_log(written(tmp_path / "run.jsonl", run_of("tao").log))
    assert len(replay_log(recorded, make_policy("round-robin"), SETTINGS, differences_max=3)) == 3


# --- the digest --------------------------------------------------------------------------------------------------------


def test_the_digest_sees_order_kind_and_content() -> None:
    stop, other = StopTurn(TurnId("t"), "a"), StopTurn(TurnId("u"), "a")  # type: ignore[arg-type]
    digests = [command_digest(some) for some in ([], [stop], [stop, other], [other, stop])]
    assert len(set(digests)) == 4
    assert command_digest([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
