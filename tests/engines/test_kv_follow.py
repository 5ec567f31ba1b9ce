"""Following a stream: gaps and replays, repetitions, a publisher that starts anew, wrong topics, silence, garbage."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from kv_kit import CLEARED, END, frames, removed, stored

from tao.engines.kv_follow import SILENCE_SECONDS, Heard, KvFollower


def following(*batches: list[bytes], topic: str | None = None) -> KvFollower:
    follower = KvFollower(topic)
    for batch in batches:
        assert follower.receive(batch, 0.0) is None
    follower.take_heard()
    return follower


def test_batches_in_order() -> None:
    follower = KvFollower("")
    assert follower.receive(frames(0, stored([1, 2])), 1.0) is None
    assert follower.receive(frames(1, removed(2), stored([3], 1, "t")), 2.0) is None
    assert follower.take_heard() == Heard({"s": 16, "t": 32})
    assert follower.take_heard() == Heard()
    assert (follower.live, follower.last_at, follower.figures.batches) == (True, 2.0, 2)


def test_repetitions_are_ignored() -> None:
    follower = following(frames(0, stored([1, 2])), frames(1, removed(2)))
    assert follower.receive(frames(0, stored([1, 2])), 3.0) is None
    assert follower.receive(frames(1, CLEARED), 3.0) is None
    assert follower.take_heard() == Heard()
    assert (follower.index.tokens("s"), follower.figures.duplicates) == (16, 2)


def test_a_gap_is_closed_by_a_replay() -> None:
    follower = following(frames(0, stored([1, 2])))
    assert follower.receive(frames(3, stored([4], 3)), 1.0) == 0, "from the last that is known"
    assert not follower.replayed(frames(0, stored([1, 2])))  # more than was asked for
    assert not follower.replayed(frames(1, stored([3], 2)))
    assert not follower.replayed(frames(2, CLEARED, stored([1, 2, 3])))
    assert not follower.replayed(frames(3, stored([4], 3)))
    assert follower.replayed([b"", END, b""])
    assert follower.take_heard() == Heard({"s": 64}, cleared=True)
    assert (follower.figures.gaps, follower.figures.replayed, follower.figures.losses) == (1, 3, 0)
    assert follower.receive(frames(4, removed(4)), 1.0) is None
    assert follower.index.tokens("s") == 48


def test_a_gap_that_is_not_closed_voids_all_that_was_told() -> None:
    follower = following(frames(0, stored([1, 2])))
    assert follower.receive(frames(3, stored([8, 9], session="t")), 1.0) == 0
    follower.replayed(frames(2, stored([3], 2)))  # 1 is not kept any more
    assert follower.replayed([b"", END, b""])
    heard = follower.take_heard()
    assert heard.lost is not None
    assert "batches 1 to 2 are missing" in heard.lost
    assert heard.tokens == {"t": 32}
    assert follower.index.tokens("s") is None
    assert follower.receive(frames(4), 1.0) is None  # and it goes on from there


def test_without_a_replay_a_gap_is_a_loss_but_a_late_start_is_none() -> None:
    late = KvFollower()
    assert late.receive(frames(40, stored([1, 2])), 1.0) == 0
    late.replay_failed("there is none")
    assert late.take_heard() == Heard({"s": 32})
    assert late.receive(frames(42), 1.0) == 40
    late.replay_failed("there is none")
    assert "there is none" in str(late.take_heard().lost)


def test_a_late_start_takes_in_what_is_still_kept() -> None:
    follower = KvFollower()
    assert follower.receive(frames(7, stored([3], 2)), 1.0) == 0
    for batch in (frames(5, stored([1])), frames(6, stored([2], 1)), frames(7, stored([3], 2))):
        follower.replayed(batch)
    follower.replayed([b"", END, b""])
    assert follower.take_heard() == Heard({"s": 48})


def test_what_is_replayed_was_heard_when_it_was_published() -> None:
    """By the clock of the batch that showed the gap: 30 s before, that is, and 10 s."""
    follower = KvFollower()
    assert follower.receive(frames(2, at=130.0), 1_000.0) == 0
    assert follower.catching_up
    follower.replayed(frames(0, stored([1], session=None), at=100.0), 1_000.5)
    follower.replayed(frames(1, stored([2], 1, session=None), at=120.0), 1_001.0)
    unnamed = follower.index.unnamed
    assert unnamed.stored_by(965.0, (0,), (2,)) == {2: 2}
    assert unnamed.stored_by(975.0, (0,), (2,)) == {}
    follower.replayed([b"", END, b""], 1_002.0)
    assert not follower.catching_up


def test_a_publisher_that_starts_anew_has_an_empty_cache() -> None:
    follower = following(*(frames(n, stored([n + 1], n or None)) for n in range(4)))
    assert follower.receive(frames(0, stored([7], session="t"), at=99.0), 1.0) is None
    assert follower.take_heard() == Heard({"t": 16}, cleared=True)
    assert follower.figures.restarts == 1
    assert follower.receive(frames(1, at=100.0), 1.0) is None


def test_a_publisher_that_starts_anew_with_a_clock_behind_is_no_repetition() -> None:
    follower = following(*(frames(n, stored([n + 1], n or None), at=1_000.0 + n) for n in range(4)))
    assert follower.receive(frames(0, stored([7], session="t"), at=400.0), 1.0) is None
    assert follower.take_heard() == Heard({"t": 16}, cleared=True)
    assert (follower.figures.restarts, follower.figures.duplicates) == (1, 0)


def test_a_publisher_that_has_started_anew_and_got_further_shows_in_the_replay() -> None:
    follower = following(*(frames(n, stored([n + 1], n or None), at=1_000.0 + n) for n in range(4)))
    assert follower.receive(frames(6, stored([70], 60, "t"), at=2_006.0), 1.0) == 3
    for number in range(3, 7):
        blocks = stored([10 * number], 10 * (number - 1) if number > 3 else None, "t")
        follower.replayed(frames(number, blocks, at=2_000.0 + number))
    follower.replayed([b"", END, b""])
    assert follower.take_heard() == Heard({"t": 64}, cleared=True)
    assert follower.index.tokens("s") is None


def test_a_publisher_that_starts_anew_unheard_is_asked_for_the_beginning() -> None:
    follower = following(*(frames(n) for n in range(4)))
    assert follower.receive(frames(2, at=99.0), 1.0) == 0


def test_a_wrong_topic_is_noticed() -> None:
    follower = KvFollower("kv@model")
    assert follower.receive(frames(0, stored([1]), topic=b"kv"), 1.0) is None
    assert follower.take_heard() == Heard()
    assert not follower.live
    assert "b'kv'" in str(follower.problem)
    follower.receive(frames(0, stored([1]), topic=b"kv@model"), 2.0)
    assert (follower.live, follower.problem, follower.figures.other_topics) == (True, None, 1)


def test_what_comes_under_another_topic_need_not_be_readable() -> None:
    follower = following(frames(0, stored([1, 2]), topic=b"kv"), topic="kv")
    follower.receive([b"stats", b"{}"], 1.0)
    follower.receive([b"stats", b"12345678", b"{}"], 1.0)
    assert (follower.take_heard(), follower.index.tokens("s")) == (Heard(), 32)
    assert (follower.figures.other_topics, follower.figures.unreadable) == (2, 0)


def test_where_no_topic_was_told_the_first_one_counts() -> None:
    follower = following(frames(0, topic=b"a"))
    follower.receive(frames(1, CLEARED, topic=b"b"), 1.0)
    assert (follower.take_heard(), follower.figures.other_topics) == (Heard(), 1)


def test_a_stream_that_should_speak_and_does_not_is_silent() -> None:
    follower = following(frames(0, stored([1, 2])))
    follower.expect(8.0, 10.0)
    follower.expect(11.0, 12.0)
    follower.listen(10.0 + SILENCE_SECONDS)
    assert follower.problem is None
    follower.listen(10.1 + SILENCE_SECONDS)
    assert not follower.live
    assert "no KV event" in str(follower.problem)
    assert follower.take_heard().lost == follower.problem
    follower.listen(11.0 + SILENCE_SECONDS)
    assert follower.take_heard() == Heard()  # said once
    follower.receive(frames(1, stored([5])), 30.0)
    assert (follower.live, follower.problem, follower.index.tokens("s")) == (True, None, 16)


def test_a_stream_that_answers_in_time_is_not_silent() -> None:
    follower = following(frames(0))
    follower.expect(8.0, 10.0)
    follower.receive(frames(1), 11.0)
    follower.expect(9.0, 12.0)  # it came while the turn ran
    follower.receive(frames(1), 90.0)
    follower.listen(100.0)
    assert follower.live
    follower.expect(80.0, 91.0)  # a repetition is no event of it
    follower.listen(100.0)
    assert not follower.live


def test_an_unreadable_message_voids_all_and_the_next_one_counts_again() -> None:
    follower = following(frames(0, stored([1, 2])))
    follower.receive([b"", (1).to_bytes(8, "big"), b"junk"], 1.0)
    assert "cannot be read" in str(follower.take_heard().lost)
    assert follower.receive(frames(2, stored([1])), 1.0) is None
    assert follower.take_heard() == Heard({"s": 16})


def test_too_many_blocks_are_a_loss() -> None:
    follower = KvFollower(blocks_max=3)
    follower.receive(frames(0, stored([1, 2, 3])), 1.0)
    follower.receive(frames(1, stored([8, 9], session="t")), 1.0)
    heard = follower.take_heard()
    assert "more than 3 blocks" in str(heard.lost)
    assert follower.index.tokens("t") == 32


def test_kinds_that_nobody_knows_are_counted() -> None:
    follower = following(frames(0, {"type": "BlockMoved"}), frames(1, ["BlockMoved"]))
    assert follower.unknown_kinds == {"BlockMoved": 2}


def test_a_reset_forgets_but_keeps_the_place() -> None:
    follower = following(frames(0, stored([1, 2])))
    follower.reset()
    assert follower.take_heard() == Heard()
    assert follower.receive(frames(1, stored([1])), 1.0) is None
    assert follower.index.tokens("s") == 16


EVENTS = st.lists(
    st.sampled_from(
        [stored([1, 2]), stored([3], 2), stored([5, 6], 1, "t"), removed(2), removed(1, 5), CLEARED]
    ),
    max_size=3,
)
MESSAGES = st.builds(
    lambda sequence, events, at: frames(sequence, *events, at=at),
    st.integers(0, 6),
    EVENTS,
    st.floats(0, 9) | st.none(),
) | st.lists(st.binary(max_size=12), max_size=4)


@given(
    st.lists(st.tuples(MESSAGES, st.sampled_from(["live", "replay", "end", "fail", "reset"])), max_size=20)
)
def test_nothing_is_raised_and_no_figure_exceeds_the_blocks(script: list[tuple[list[bytes], str]]) -> None:
    follower = KvFollower("")
    for at, (message, way) in enumerate(script):
        match way:
            case "live" if (start := follower.receive(message, float(at))) is not None:
                assert start >= 0
                follower.replay_failed("never")
            case "replay":
                follower.replayed(message)
            case "end":
                assert follower.replayed([b"", END, b""])
            case "fail":
                follower.replay_failed("why not")
            case "reset":
                follower.reset()
        follower.listen(float(at))
        for session in ("s", "t"):
            assert (follower.index.tokens(session) or 0) <= 16 * follower.index.blocks
        follower.take_heard()


def test_a_million_blocks_stay_within_the_bound() -> None:
    """The figure in the docs is measured apart; here the bound holds, and what is told is true."""
    follower = KvFollower("", blocks_max=20_000)
    for number in range(200):
        first = 1_000 * number + 1
        told = stored(list(range(first, first + 1_000)), None, f"s{number}")
        told["token_ids"] = []
        follower.receive(frames(number, told), 0.0)
        assert follower.index.blocks <= 20_000
        assert follower.index.tokens(f"s{number}") == 16_000
    assert follower.index.overflows == 9
    assert len(msgspec.msgpack.encode(follower.take_heard().tokens)) > 0
