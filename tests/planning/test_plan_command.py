"""`tao plan` as a person runs it: a table, JSON to the letter, and clear messages with exit code 2."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from tao.cli import main
from tao.cli.plan import bar
from tao.planning import (
    SOLVERS,
    Item,
    Knapsack,
    Problem,
    SnapshotError,
    SparseValues,
    Triple,
    read_snapshot,
    write_snapshot,
)
from tao.planning.snapshot import SNAPSHOT_BYTES_MAX
from tests.planning.pools import pool

EXAMPLE = (
    '{"replicas":[{"id":"a","capacity_tokens":120000}],"sessions":[{"id":"s1","weight_tokens":20512,'
    '"footprint_tokens":20000,"ready":1,"credit":{"a":15000},"eligible":["a"]}]}'
)


def run(*arguments: str, text: str | bytes = "") -> tuple[int, str]:
    result = CliRunner().invoke(
        main, ["plan", *arguments], input=text, prog_name="tao", env={"COLUMNS": "150"}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def snapshot(**changes: Any) -> str:
    session = {"id": "s1", "weight_tokens": 10, "footprint_tokens": 10} | changes
    return json.dumps({"replicas": [{"id": "a", "capacity_tokens": 20}], "sessions": [session]})


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_json_output_to_the_letter(tmp_path: Path, solver: str) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(EXAMPLE)
    code, output = run(str(file), "--json", "--solver", solver, "--time-limit", "5")
    assert code == 0
    answer = json.loads(output)
    assert list(answer) == ["status", "solver", "objective", "bound", "assignment", "elapsed_seconds"]
    assert answer["status"] == "optimal"
    assert answer["objective"] == answer["bound"] == {"credit": 15000, "ready": 1, "footprint": 20000}
    assert answer["assignment"] == {"s1": "a"}
    assert answer["elapsed_seconds"] > 0


def test_the_table_shows_fill_value_and_what_waits() -> None:
    text = json.dumps(
        {
            "replicas": [
                {"id": "left", "capacity_tokens": 100, "slots": 12},
                {"id": "right", "capacity_tokens": 0},
            ],
            "sessions": [
                {"id": f"s{n}", "weight_tokens": 9, "footprint_tokens": 9, "waited_seconds": 9.0 * n}
                for n in range(14)
            ],
            "wait_seconds_max": 100,
        }
    )
    code, output = run("-", text=text)
    assert code == 0
    for part in (
        "left",
        "right",
        "█",
        "99%",
        "11/12",
        "and 3 more",
        "proved",
        "11 placed (0 away from home), 3 waiting",
    ):
        assert part in output, output
    assert (
        "waited too long: 2, 2 of them placed first, at a price of 0 credit, 0 readiness, 0 footprint"
        in output
    )
    fields = json.loads(run("-", "--json", text=text)[1])
    assert fields["ageing"]["aged"] == fields["ageing"]["placed"] == ["s13", "s12"]


def test_a_gap_is_shown_where_nothing_is_proved() -> None:
    code, output = run("-", "--solver", "bfd", text=write_snapshot(pool(3, 40, 4)))
    assert code == 0
    assert "feasible by bfd" in output
    assert output.count("proved") == 0
    assert ", quantum 2" in run("-", "--solver", "dp", text=write_snapshot(pool(1, 40, 4)))[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (snapshot(eligible=["z"]), "session 's1': eligible names 'z', which is no replica here"),
        (snapshot(credit={"z": 4}), "session 's1': credit names 'z', which is no replica here"),
        (
            snapshot(credit={"a": 4}, eligible=[]),
            "session 's1': has credit on 'a', which is not eligible for it",
        ),
        (snapshot(eligible=["a", "a"]), "session 's1': eligible names a replica twice"),
        (snapshot(weight_tokens=-1), "Expected `int` >= 0 - at `$.sessions[0].weight_tokens`"),
        (snapshot(weight_tokens=1.5), "Expected `int`, got `float` - at `$.sessions[0].weight_tokens`"),
        (snapshot(weight_tokens="9"), "Expected `int`, got `str`"),
        (snapshot(weight_tokens=2**40), "Expected `int` <= 1099511627775"),
        (snapshot(ready=2), "Expected `int` <= 1"),
        (snapshot(waited_seconds=-1), "Expected `float` >= 0"),
        (snapshot(wieght=1), "unknown field `wieght`"),
        (
            EXAMPLE.replace('"replicas":[', '"replicas":[{"id":"a","capacity_tokens":1},'),
            "replica id 'a' is there twice",
        ),
        (
            EXAMPLE.replace(
                '"sessions":[', '"sessions":[{"id":"s1","weight_tokens":1,"footprint_tokens":1},'
            ),
            "session id 's1' is there twice",
        ),
        ('{"replicas":[]}', "missing required field `sessions`"),
        ("", "not a snapshot"),
        ("[" * 100_000, "not a snapshot"),
        (Random("nonsense").randbytes(10_000_000), "not a snapshot"),
        ('{"replicas":"' + "x" * 10_000_000, "not a snapshot"),
        (b'{"replicas":[{"id":"\xff","capacity_tokens":1}],"sessions":[]}', "not a snapshot"),
        (b" " * (SNAPSHOT_BYTES_MAX + 2), "more than the limit"),
    ],
)
def test_bad_input_is_named_and_ends_with_2(text: str | bytes, message: str) -> None:
    code, output = run("-", text=text)
    assert code == 2
    assert message in output


def test_bad_options_end_with_2(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(EXAMPLE)
    for arguments in (
        ("no-such-file.json",),
        (str(file), "--time-limit", "0"),
        (str(file), "--solver", "best"),
        (),
    ):
        assert run(*arguments)[0] == 2
    too_many = {
        "replicas": [],
        "sessions": [json.loads(snapshot())["sessions"][0] | {"id": str(n)} for n in range(20_001)],
    }
    code, output = run("-", text=json.dumps(too_many))
    assert (code, "20001 items are more than the limit" in output) == (2, True)


def test_snapshots_come_back_as_they_were() -> None:
    problem = pool(5, 20, 3)
    again = read_snapshot(write_snapshot(problem))
    assert again == problem
    some = Item("some", 4, SparseValues(("k0",), {"k0": 3}, 1, 4), "k0", 12.5)
    none = Item("none", 4, {})
    problem = Problem((Knapsack("k0", 9, 2), Knapsack("k1", 9)), (some, none), 300.0)
    again = read_snapshot(write_snapshot(problem))
    assert [dict(item.values) for item in again.items] == [{"k0": Triple(3, 1, 4)}, {}]
    assert (again.knapsacks, again.wait_seconds_max) == (problem.knapsacks, 300.0)
    assert again.items[0] == some


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": Triple(1, 0, 2), "b": Triple(1, 0, 3)}, "session 'i': readiness or footprint differ"),
        ({"a": Triple(1, 2, 2)}, "session 'i': readiness is 2, not 0 or 1"),
    ],
)
def test_what_a_snapshot_cannot_say_is_refused(values: dict[str, Triple], message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        write_snapshot(Problem((Knapsack("a", 1), Knapsack("b", 1)), (Item("i", 1, values),)))


def test_bars_are_filled_to_an_eighth() -> None:
    assert bar(0, 100) == "··········   0%"
    assert bar(100, 100) == "██████████ 100%"
    assert bar(0, 0) == "··········   0%"
    assert bar(1, 20).startswith("▌·")
