"""How prompts begin: pieces that two requests name alike exactly as far as their prompts are."""

import json
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tao.core.event_values import PrefixNode
from tao.gateway.wire.beginnings import PIECE_BYTES_MIN, Beginnings
from tao.gateway.wire.prefix import prompt_chain
from tao.gateway.wire.requests import MalformedRequestError, ParsedRequest, parse_request
from tests.gateway_wire.wire_builders import BASH, PATHS, SYSTEM, assistant, chat, request, user

LONG, OTHER = "Mend the failing test. " * 40, "Write a parser of dates. " * 40
SHORT = "Go on."
ROOMY_TOKENS = 1 << 20


def nodes(
    beginnings: Beginnings,
    asked: ParsedRequest,
    *,
    bytes_per_token: float = 5.0,
    prompt_tokens: int = ROOMY_TOKENS,
    now: float = 0.0,
) -> tuple[PrefixNode, ...]:
    return beginnings.nodes(
        asked,
        prompt_chain(asked),
        bytes_per_token=bytes_per_token,
        prompt_tokens=prompt_tokens,
        now=now,
    )


def alike(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """What both begin with."""
    pairs = zip(one, other, strict=False)
    return [item for item, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def completion(prompt: Any, **fields: Any) -> ParsedRequest:
    return request("/v1/completions", {"model": "tiny", "prompt": prompt, **fields})


# --- equal exactly as far as the prompts are --------------------------------------------------------------------------

SAID = st.sampled_from([SHORT, LONG, OTHER])
MESSAGES = st.lists(st.one_of(SAID.map(user), SAID.map(assistant)), max_size=5)
SYSTEMS = st.sampled_from([SHORT, LONG, OTHER]).map(lambda text: {"role": "system", "content": text})
RATIO = st.floats(0.5, 40.0)


@given(SYSTEMS, SYSTEMS, MESSAGES, MESSAGES, MESSAGES, RATIO, RATIO)
def test_two_conversations_name_what_they_begin_with_alike_and_nothing_else(
    system: dict[str, Any],
    other_system: dict[str, Any],
    both: list[dict[str, Any]],
    one: list[dict[str, Any]],
    other: list[dict[str, Any]],
    ratio: float,
    other_ratio: float,
) -> None:
    beginnings = Beginnings()
    mine, theirs = [system, *both, *one], [other_system, *both, *other]
    named = nodes(beginnings, chat(mine), bytes_per_token=ratio)
    named_there = nodes(beginnings, chat(theirs), bytes_per_token=other_ratio)
    begin = alike(mine, theirs)
    expected = nodes(beginnings, chat(begin)) if begin else ()
    assert tuple(alike(named, named_there)) == expected
    assert set(named) & set(named_there) == set(expected)


@given(st.integers(0, 30_000), st.text("ab", max_size=9_000), st.text("ab", max_size=9_000))
def test_two_texts_name_what_they_begin_with_alike_in_whole_pieces(both: int, one: str, other: str) -> None:
    beginnings = Beginnings()
    mine, theirs = "x" * both + one, "x" * both + other
    named, named_there = nodes(beginnings, completion(mine)), nodes(beginnings, completion(theirs))
    begin = "".join(alike(mine, theirs))
    assert set(named) & set(named_there) == set(nodes(beginnings, completion(begin)))


@given(MESSAGES, RATIO, st.integers(1, 2_000))
def test_never_more_than_the_turn_has(
    messages: list[dict[str, Any]], ratio: float, prompt_tokens: int
) -> None:
    beginnings = Beginnings()
    asked = chat([SYSTEM, *messages])
    whole = nodes(beginnings, asked, bytes_per_token=ratio)
    named = nodes(beginnings, asked, bytes_per_token=ratio, prompt_tokens=prompt_tokens)
    assert sum(node.tokens for node in named) <= prompt_tokens
    assert named == whole[: len(named)]
    if len(named) < len(whole):
        assert sum(node.tokens for node in whole[: len(named) + 1]) > prompt_tokens


# --- which pieces -----------------------------------------------------------------------------------------------------


def test_one_task_tried_several_times_is_shared_with_its_first_messages() -> None:
    beginnings = Beginnings()
    first = nodes(beginnings, chat([SYSTEM, user(LONG), user(OTHER), user(LONG)], tools=[BASH]))
    assert len(first) == 3
    later = chat([SYSTEM, user(LONG), user(OTHER), user(LONG), assistant(OTHER), user("on")], tools=[BASH])
    assert nodes(beginnings, later) == first


def test_what_the_model_wrote_is_nobody_elses() -> None:
    beginnings = Beginnings()
    first = nodes(beginnings, chat([SYSTEM, user(LONG)]))
    assert len(first) == 2
    assert nodes(beginnings, chat([SYSTEM, user(LONG), assistant(OTHER), user(OTHER)])) == first


def test_what_is_too_short_belongs_to_the_piece_after_it() -> None:
    beginnings = Beginnings()
    brief = {"role": "system", "content": "x" * (PIECE_BYTES_MIN - 60)}
    assert nodes(beginnings, chat([brief])) == ()
    (piece,) = nodes(beginnings, chat([brief, user(LONG)]), bytes_per_token=5.0)
    chain = prompt_chain(chat([brief, user(LONG)]))
    assert chain is not None
    assert piece.tokens == chain.text_bytes // 5
    (alone,) = nodes(beginnings, chat([user(LONG)]), bytes_per_token=5.0)
    assert alone.tokens < piece.tokens


def test_a_growing_text_keeps_its_pieces() -> None:
    beginnings = Beginnings()
    whole = nodes(beginnings, completion("y" * 20_000))
    assert [node.tokens for node in whole] == [1_024 // 5, 3_072 // 5, 12_288 // 5]
    assert [len(nodes(beginnings, completion("y" * size))) for size in (1_023, 1_024, 5_000)] == [0, 1, 2]
    assert nodes(beginnings, completion("y" * 5_000)) == whole[:2]


def test_token_ids_are_a_text_of_their_own() -> None:
    beginnings = Beginnings()
    ids = list(range(1_000, 2_000))
    assert nodes(beginnings, completion(ids))[:1] == nodes(beginnings, completion([*ids[:500], 7]))[:1] != ()


# --- fixed at first sight ---------------------------------------------------------------------------------------------


def test_the_estimate_of_first_sight_stays_while_the_ratio_is_learned() -> None:
    beginnings = Beginnings()
    first = nodes(beginnings, chat([SYSTEM, user(LONG)]), bytes_per_token=8.0)
    assert nodes(beginnings, chat([SYSTEM, user(LONG)]), bytes_per_token=4.0) == first


def test_code_in_conversations_does_not_make_system_prompts_longer() -> None:
    chain = prompt_chain(chat([SYSTEM]))
    assert chain is not None
    (piece,) = nodes(Beginnings(), chat([SYSTEM]), bytes_per_token=2.0)
    assert piece.tokens == int(chain.root_bytes / 4.5)


def test_pieces_are_bounded_and_expire() -> None:
    beginnings = Beginnings(pieces_max=1, idle_seconds=10.0)
    first = nodes(beginnings, chat([SYSTEM]), bytes_per_token=5.0)
    assert nodes(beginnings, chat([SYSTEM]), bytes_per_token=8.0, now=8.0) == first
    assert beginnings.expire(17.0) == 0
    assert beginnings.expire(19.0) == 1
    (again,) = nodes(beginnings, chat([SYSTEM]), bytes_per_token=8.0)
    assert (again.key, again.tokens < first[0].tokens) == (first[0].key, True)
    nodes(beginnings, chat([user(LONG)]))
    assert nodes(beginnings, chat([SYSTEM]), bytes_per_token=5.0) == first


# --- what keeps caches apart, and what is not known --------------------------------------------------------------------


def test_clients_share_but_for_a_salt_another_model_or_another_template() -> None:
    beginnings = Beginnings()
    ours = nodes(beginnings, chat([SYSTEM], headers={"Authorization": "Bearer a"}))
    assert (
        nodes(beginnings, chat([SYSTEM], headers={"Authorization": "Bearer b"}, temperature=1.0))
        == ours
        != ()
    )
    salted = nodes(beginnings, chat([SYSTEM], cache_salt="s"))
    apart = [
        ours,
        salted,
        nodes(beginnings, chat([SYSTEM], cache_salt="t")),
        nodes(beginnings, chat([SYSTEM], extra_key="s")),
        nodes(beginnings, chat([SYSTEM], chat_template_kwargs={"enable_thinking": False})),
        nodes(beginnings, chat([SYSTEM], tools=[BASH])),
        nodes(beginnings, request(PATHS["chat"], {"model": "other", "messages": [SYSTEM]})),
    ]
    assert len({node.key for named in apart for node in named}) == len(apart)
    assert nodes(beginnings, chat([SYSTEM], cache_salt="s")) == salted


def test_nothing_is_said_of_what_was_not_read() -> None:
    beginnings = Beginnings()
    stored = {"model": "tiny", "input": LONG, "previous_response_id": "r1"}
    assert nodes(beginnings, request(PATHS["responses"], stored)) == ()
    packed = request(PATHS["chat"], {"model": "tiny", "messages": [SYSTEM]}, {"content-encoding": "unknown"})
    assert packed.opaque
    assert nodes(beginnings, packed) == ()


def deeper(frames: int, call: Callable[[], tuple[PrefixNode, ...]]) -> tuple[PrefixNode, ...]:
    """The result of `call`, made with so many more frames on the stack."""
    return deeper(frames - 1, call) if frames else call()


def test_a_salt_nested_so_deeply_that_it_can_only_just_be_read_is_no_crash() -> None:
    for depth in range(1_000, 0, -1):
        nested = "[" * depth + "]" * depth
        body = json.dumps({"model": "tiny", "messages": [SYSTEM], "cache_salt": 0}).replace("0", nested)
        try:
            asked = parse_request("POST", PATHS["chat"], [], body.encode())
        except MalformedRequestError:
            continue
        assert deeper(30, lambda: nodes(Beginnings(), asked)) == ()  # noqa: B023
        return
    raise AssertionError("no depth can be read")
