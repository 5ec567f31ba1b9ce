"""A file of replicas: both forms, changes of every kind, and everything that can be wrong with it."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import until

from tao.gateway.sources import ReplicaFileError, Wanted, WatchedFile
from tests.gateway_sources.told import following, urls

QUICK_SECONDS = 0.01


def write(path: Path, text: str) -> None:
    path.write_text(text)


def move(path: Path, to: Path) -> None:
    path.replace(to)


def delete(path: Path) -> None:
    path.unlink()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "replicas.toml"
    path.write_text('replicas = ["http://a:1", {url = "http://b:2", draining = true}]')
    return path


def test_an_entry_may_say_its_slots(file: Path) -> None:
    file.write_text('replicas = ["http://a:1", {url = "http://b:2", slots = 64}]')
    assert WatchedFile(file, QUICK_SECONDS).read() == (Wanted("http://a:1"), Wanted("http://b:2", slots=64))


def test_toml_and_json_say_the_same(file: Path) -> None:
    said = WatchedFile(file, QUICK_SECONDS).read()
    assert said == (Wanted("http://a:1"), Wanted("http://b:2", draining=True))
    other = file.with_suffix(".json")
    other.write_text(json.dumps({"replicas": ["http://a:1", {"url": "http://b:2", "draining": True}]}))
    assert WatchedFile(other, QUICK_SECONDS).read() == said


async def test_each_change_is_told_once(file: Path) -> None:
    async with following(WatchedFile(file, QUICK_SECONDS)) as sets:
        await until(lambda: len(sets) == 1)
        write(file, "replicas = []")
        await until(lambda: len(sets) == 2)
        write(file, "# the same\nreplicas = []\n")
        other = file.with_name("other")
        write(other, 'replicas = ["http://c:3"]')
        move(other, file)  # as editors and Kubernetes do
        await until(lambda: len(sets) == 3)
        assert urls(*sets) == [["http://a:1", "http://b:2!"], [], ["http://c:3"]]


async def test_a_bad_file_is_logged_once_and_the_last_good_list_stays(
    file: Path, logs: list[dict[str, Any]]
) -> None:
    source = WatchedFile(file, QUICK_SECONDS)
    async with following(source) as sets:
        await until(lambda: sets)
        write(file, "replicas = [")
        await until(lambda: source.problem)
        assert "replicas.toml" in str(source.problem)
        delete(file)
        await until(lambda: "No such file" in str(source.problem))
        write(file, 'replicas = ["http://a:1"]')
        await until(lambda: len(sets) == 2)
        assert source.problem is None
    assert urls(*sets) == [["http://a:1", "http://b:2!"], ["http://a:1"]]
    assert len([entry for entry in logs if entry["log_level"] == "error"]) <= 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "one list named 'replicas'"),
        ("replicas = 1", "one list named 'replicas'"),
        ("replicas = []\nmore = 1", "nothing else"),
        ('replicas = ["a:1"]', "not an http(s) URL"),
        ('replicas = ["http://a:1/v1"]', "ends in /v1"),
        ('replicas = ["http://a b:1"]', "replica"),
        ('replicas = ["http://a:1", "http://a:1/"]', "named twice"),
        ('replicas = [{url = "http://a:1", drain = true}]', "drain"),
        ("replicas = [{draining = true}]", "url"),
        ("replicas = [1]", "replica 1"),
        (
            'replicas = [{url = "http://a:1", slots = 0}]',
            "replica {'url': 'http://a:1', 'slots': 0}: Expected `int` >= 1",
        ),
        ('replicas = [{url = "http://a:1", slots = -3}]', "Expected `int` >= 1 - at `$.slots`"),
        (
            'replicas = [{url = "http://a:1", slots = 1_000_000_000}]',
            "Expected `int` <= 1048576 - at `$.slots`",
        ),
        ('replicas = [{url = "http://a:1", slots = 1.5}]', "got `float` - at `$.slots`"),
        ('replicas = [{url = "http://a:1", slots = true}]', "got `bool` - at `$.slots`"),
        ('replicas = [{url = "http://a:1", slots = "engine"}]', "got `str` - at `$.slots`"),
        ("\x00", "replicas.toml"),
    ],
)
def test_what_is_wrong_is_named(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(ReplicaFileError) as caught:
        WatchedFile(file, QUICK_SECONDS).read()
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_no_text_or_no_file_is_an_error(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ReplicaFileError):
        WatchedFile(file, QUICK_SECONDS).read()
    with pytest.raises(ReplicaFileError, match="cannot be read"):
        WatchedFile(file.parent, QUICK_SECONDS).read()


class Rewritten(WatchedFile):
    """Finds the next content at each look, and the last for ever: a file that is written in place, in pieces."""

    def __init__(self, path: Path, *contents: str) -> None:
        super().__init__(path, 0.001)
        self.contents = list(contents)
        self.looks = 0

    def read(self) -> tuple[Wanted, ...]:
        self._path.write_text(self.contents[min(self.looks, len(self.contents) - 1)])
        self.looks += 1
        return super().read()


def entries(*urls: str) -> str:
    """The form in which a part of a list is a list."""
    return "".join(
        f'[[replicas]]\nurl = "{url.rstrip("!")}"\n' + "draining = true\n" * url.endswith("!") for url in urls
    )


async def test_of_a_file_that_is_being_written_no_part_counts(file: Path) -> None:
    """A list counts at once at the start, and later with the second look that sees it."""
    before, after = ["http://a:1", "http://b:2!", "http://c:3"], ["http://a:1", "http://b:2!", "http://d:4"]
    whole = entries(*after)
    parts = [entries("http://a:1"), entries("http://a:1", "http://b:2"), whole[:-3]]
    source = Rewritten(file, entries(*before), *parts, whole, whole, entries("http://e:5"))
    async with following(source) as sets:
        await until(lambda: len(sets) == 3)
        assert urls(*sets) == [before, after, ["http://e:5"]]


async def test_what_is_as_before_at_the_next_look_was_no_change(file: Path) -> None:
    one, two = entries("http://a:1"), entries("http://a:1", "http://b:2")
    source = Rewritten(file, two, one, two, one, one, two)
    async with following(source) as sets:
        await until(lambda: len(sets) == 3)
        assert urls(*sets) == [["http://a:1", "http://b:2"], ["http://a:1"], ["http://a:1", "http://b:2"]]


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_what_is_nested_too_deeply_is_an_error(file: Path, suffix: str) -> None:
    deep = file.with_suffix(suffix)
    deep.write_text(('{"replicas": ' if suffix == ".json" else "replicas = ") + "[" * 100_000)
    with pytest.raises(ReplicaFileError, match="replicas"):
        WatchedFile(deep, QUICK_SECONDS).read()


async def test_a_pipe_is_no_file_of_replicas(tmp_path: Path) -> None:
    """Nobody writes to it: whoever opens it waits, and so would the end of the process."""
    path = tmp_path / "replicas.toml"
    os.mkfifo(path)
    async with asyncio.timeout(5.0):
        with pytest.raises(ReplicaFileError, match="no regular file"):
            await asyncio.to_thread(WatchedFile(path, 0.01).read)
