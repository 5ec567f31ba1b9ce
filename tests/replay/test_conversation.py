"""Prompts as a pure function of what was recorded and what came back."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from tao.replay.conversation import Conversation, SharedPrompts
from tao.replay.text import TextPool, TokenRatio

POOL = TextPool(0)


def tokens_of(conversation: Conversation, chars_per_token: float) -> int:
    messages = json.loads(conversation.body_messages())
    return round(sum(len(m["content"]) for m in messages) / chars_per_token)


@given(
    growth=st.lists(st.integers(300, 5000), min_size=2, max_size=12),
    chars_per_token=st.floats(1.5, 7.0),
    output=st.integers(1, 200),
)
def test_lengths_follow_the_record_whatever_the_tokeniser(
    growth: list[int], chars_per_token: float, output: int
) -> None:
    conversation = Conversation("s", None, POOL, TokenRatio(), 0)
    recorded = 0
    said = 0
    before = b""
    for index, added in enumerate(growth):
        recorded += added + output
        conversation.extend(recorded, new_prefix=False)
        body = conversation.body_messages()
        assert body.startswith(before[:-1])
        actual = tokens_of(conversation, chars_per_token)
        if index > 0 and recorded > said:  # a prompt never shrinks: one guessed too long has to be waited for
            assert abs(actual - recorded) <= max(20, 0.02 * recorded)
        said = actual + output
        conversation.answered("x" * round(output * chars_per_token), actual, output)
        before = body


def test_a_new_prefix_keeps_the_system_prompt_only() -> None:
    conversation = Conversation("s", "SYSTEM", POOL, TokenRatio(4.0), 0)
    for prompt in (100, 200):
        conversation.extend(prompt, new_prefix=False)
        conversation.answered("", None, None)
    conversation.extend(50, new_prefix=True)
    system, task = json.loads(conversation.body_messages())
    assert system == {"role": "system", "content": "SYSTEM"}
    assert task["content"].startswith("[s.2] ")


def test_a_task_of_several_sessions_is_the_first_message_of_each_and_never_comes_again() -> None:
    one, other = (Conversation(name, "SYSTEM", POOL, TokenRatio(4.0), 0, task="TASK") for name in "ab")
    for conversation in (one, other):
        conversation.extend(100, new_prefix=True)
        assert [m["content"] for m in json.loads(conversation.body_messages())] == ["SYSTEM", "TASK"]
        conversation.answered("", None, None)
        conversation.extend(200, new_prefix=False)
    assert one.body_messages() != other.body_messages()
    one.extend(50, new_prefix=True)
    assert b"TASK" not in one.body_messages()


def test_an_empty_answer_still_is_a_message() -> None:
    conversation = Conversation("s", None, POOL, TokenRatio(4.0), 0)
    conversation.extend(100, new_prefix=True)
    conversation.answered("", None, None)
    assert json.loads(conversation.body_messages())[-1] == {"role": "assistant", "content": "(no text)"}


def test_shared_prompts_of_a_group_begin_alike_and_groups_differ() -> None:
    shared = SharedPrompts(POOL, TokenRatio(4.0))
    long, short, other = shared.prompt("g", 500), shared.prompt("g", 100), shared.prompt("h", 500)
    assert (len(long), len(short)) == (2000, 400)
    assert long.startswith(short)
    assert not other.startswith(short)
    ratio = TokenRatio()
    learning = SharedPrompts(POOL, ratio)
    first = learning.prompt("g", 500)
    ratio.observe(9000, 1000)
    assert learning.prompt("g", 500) == first


def test_texts_depend_on_seed_and_name_only() -> None:
    assert TextPool(1).named("a", 100) == TextPool(1).named("a", 100)
    assert TextPool(1).named("a", 100) != TextPool(2).named("a", 100)
    assert len(POOL.text(700_000, random.Random(0))) == 700_000


def test_small_or_impossible_evidence_does_not_move_the_ratio() -> None:
    ratio = TokenRatio()
    for chars, tokens in ((10, 90), (9000, 0), (9000, -5), (9000, 10)):
        ratio.observe(chars, tokens)
    assert ratio.chars_per_token == 4.0
    for _ in range(1000):
        ratio.observe(30_000, 10_000)
    for _ in range(200):
        ratio.observe(60_000, 10_000)
    assert 5.5 < ratio.chars_per_token < 6.0  # it forgets
