"""Answers: cut to a limit, and told token by token without losing or splitting a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tao.emulator.answer import AnswerCursor, CallDelta, TextDelta, compose, drawn_tokens, filler
from tao.emulator.conversation import Part, Text, ToolCall

parts = st.lists(
    st.one_of(
        st.builds(Text, st.text(max_size=60)),
        st.builds(ToolCall, st.just("id"), st.just("bash"), st.just('{"command":"ls"}')),
    ),
    max_size=4,
)


@given(parts=parts, limit=st.integers(1, 40), steps=st.lists(st.integers(1, 7), max_size=40))
def test_what_is_streamed_is_what_is_said(parts: list[Part], limit: int, steps: list[int]) -> None:
    answer = compose(parts, limit)
    assert 1 <= answer.tokens <= limit
    assert sum(tokens for _, tokens in answer.segments) == answer.tokens
    cursor, position, deltas = AnswerCursor(answer), 0, []
    for step in steps:
        position += step
        deltas += cursor.upto(min(position, answer.tokens))
    deltas += cursor.upto(answer.tokens)
    texts: dict[int, str] = {}
    calls = []
    for delta in deltas:
        if isinstance(delta, TextDelta):
            texts[delta.part] = texts.get(delta.part, "") + delta.text
        else:
            assert isinstance(delta, CallDelta)
            calls.append(delta.call)
    said = {n: part.text for n, part in enumerate(answer.parts) if isinstance(part, Text)}
    assert texts == said
    assert calls == [part for part in answer.parts if isinstance(part, ToolCall)]
    assert (answer.finish_reason == "tool_calls") <= bool(calls)


def test_a_cut_call_is_not_made() -> None:
    answer = compose([Text("abcdefgh"), ToolCall("i", "bash", "{}")], 5)
    assert (answer.parts, answer.tokens, answer.finish_reason) == ((Text("abcdefgh"),), 5, "length")


def test_filler_has_its_length() -> None:
    assert len(filler("x", 123).text) == 4 * 123
    assert filler("x", 50) == filler("x", 50) != filler("y", 50)
    lengths = sorted(drawn_tokens(str(n)) for n in range(2000))
    assert 140 < lengths[1000] < 180
    assert lengths[0] >= 8
