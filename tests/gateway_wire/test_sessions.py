"""Main lines, fingerprints and bounded memory: which session, and what kind of turn."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao.core.events import TurnKind
from tao.gateway.wire.identity import IdentitySource
from tao.gateway.wire.lines import CHECKPOINTS_MAX, Line, SessionLines
from tao.gateway.wire.prefix import prompt_chain
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.sessions import Resolution, SessionIndex
from tao.gateway.wire.tables import RecentTable
from tests.gateway_wire.wire_builders import BASH, SYSTEM, assistant, chat, request, tool, user

ID = {"x-session-id": "s"}
Messages = list[dict[str, Any]]


def history(name: str, turns: int, size: int = 200) -> Messages:
    """A conversation after `turns` answers: system, task, then (answer, tool result) pairs."""
    messages: Messages = [SYSTEM, user(f"task {name}")]
    for turn in range(turns):
        messages += [assistant(f"{name} thinks {turn} " * 10, f"call-{name}-{turn}")]
        messages += [tool(f"call-{name}-{turn}", f"{name} result {turn} " + "x" * size)]
    return messages


def resolve(index: SessionIndex, parsed: ParsedRequest, now: float = 0.0) -> Resolution:
    return index.resolve(parsed, now)


def kind(index: SessionIndex, messages: Messages, **fields: Any) -> TurnKind:
    return resolve(index, chat(messages, headers=ID, tools=fields.pop("tools", [BASH]), **fields)).turn.kind


# --- turns of a known session ---------------------------------------------------------------------


def test_a_main_line_grows_and_retries_stay_on_it() -> None:
    index = SessionIndex()
    for turns in range(4):
        assert kind(index, history("a", turns)) is TurnKind.MAIN
    assert kind(index, history("a", 3)) is TurnKind.MAIN


def test_what_is_shared_is_told_in_bytes() -> None:
    index = SessionIndex()
    first = resolve(index, chat(history("a", 1), headers=ID))
    second = resolve(index, chat(history("a", 2), headers=ID))
    assert first.chain is not None
    assert second.turn.shared_bytes == first.chain.text_bytes


def test_a_title_request_is_a_side_turn_whenever_it_comes() -> None:
    title = [{"role": "system", "content": "You write titles."}, user("task a")]
    after = SessionIndex()
    assert kind(after, history("a", 1)) is TurnKind.MAIN
    assert kind(after, title, tools=None) is TurnKind.SIDE
    assert kind(after, history("a", 2)) is TurnKind.MAIN
    before = SessionIndex()
    assert kind(before, title, tools=None) is TurnKind.MAIN
    assert kind(before, history("a", 0)) is TurnKind.RESET
    assert kind(before, title, tools=None) is TurnKind.SIDE
    assert kind(before, history("a", 1)) is TurnKind.MAIN


def test_a_declared_auxiliary_request_leaves_the_main_line_alone() -> None:
    index = SessionIndex()
    kind(index, history("a", 2))
    auxiliary = chat(
        [*history("a", 2), user("summarise")], headers={**ID, "x-claude-code-request-class": "auxiliary"}
    )
    assert resolve(index, auxiliary).turn.kind is TurnKind.SIDE
    assert kind(index, history("a", 3)) is TurnKind.MAIN


def test_compaction_is_a_reset() -> None:
    index = SessionIndex()
    kind(index, history("a", 6))
    compacted = [SYSTEM, user("summary of all that was done"), *history("a", 6)[-2:]]
    assert kind(index, compacted) is TurnKind.RESET
    assert kind(index, [*compacted, assistant("next"), user("go")]) is TurnKind.MAIN


def test_a_header_that_says_compacted_is_a_reset_and_so_is_a_new_codex_window() -> None:
    index = SessionIndex()
    kind(index, history("a", 1))
    told = chat(history("a", 2), headers={**ID, "x-claude-code-context-compacted": "true"}, tools=[BASH])
    assert resolve(index, told).turn.kind is TurnKind.RESET
    windows = ["t:0", "t:0", "t:1", "t:1"]
    kinds = [
        resolve(
            index, chat(history("b", 1), headers={"thread-id": "t", "x-codex-window-id": window})
        ).turn.kind
        for window in windows
    ]
    assert kinds == [TurnKind.MAIN, TurnKind.MAIN, TurnKind.RESET, TurnKind.MAIN]


def test_new_tools_for_good_are_a_reset() -> None:
    index = SessionIndex()
    kind(index, history("a", 3))
    more = {"type": "function", "function": {"name": "other"}}
    assert kind(index, history("a", 4), tools=[BASH, more]) is TurnKind.RESET
    assert kind(index, history("a", 5), tools=[BASH, more]) is TurnKind.MAIN


def test_an_edited_tail_stays_on_the_main_line() -> None:
    index = SessionIndex()
    kind(index, history("a", 5))
    assert kind(index, [*history("a", 5)[:-1], tool("call-a-4", "another result")]) is TurnKind.MAIN


def test_sub_agents_that_share_an_id_do_not_overwrite_a_longer_main_line() -> None:
    index = SessionIndex()
    kind(index, history("a", 6))
    assert kind(index, history("b", 0)) is TurnKind.RESET
    assert kind(index, history("a", 7)) is TurnKind.RESET, "another context than the one before"
    assert kind(index, history("b", 1)) is TurnKind.SIDE
    assert kind(index, history("a", 8)) is TurnKind.MAIN


def test_cache_breakpoints_reasoning_and_billing_lines_change_nothing() -> None:
    index = SessionIndex()

    def messages(turn: int) -> ParsedRequest:
        mark = {"cache_control": {"type": "ephemeral"}}
        last = [{"type": "text", "text": "result " * 40, **mark}]
        body: dict[str, Any] = {
            "model": "m",
            "system": [
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={turn}"},
                {"type": "text", "text": "You are Claude Code. " * 30, **mark},
            ],
            "messages": [user("task"), {"role": "user", "content": last}],
        }
        if turn:
            body["messages"][1] = user("result " * 40)
            thinking = {"type": "thinking", "thinking": f"t{turn}", "signature": "s"}
            body["messages"] += [
                {"role": "assistant", "content": [thinking, {"type": "text", "text": "ok"}]},
                {"role": "user", "content": last},
            ]
        return request("/v1/messages", body, {"x-claude-code-session-id": "c"})

    first = resolve(index, messages(0))
    second = resolve(index, messages(1))
    assert first.billing_line
    assert first.chain is not None
    assert second.chain is not None
    assert (second.turn.kind, second.turn.shared_bytes) == (TurnKind.MAIN, first.chain.text_bytes)
    assert second.chain.digests == (resolve(index, messages(2)).chain or second.chain).digests


def test_base64_images_do_not_count_as_text() -> None:
    image = "A" * 100_000
    openai_form = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    anthropic_form = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}
    for block in (openai_form, anthropic_form):
        chain = prompt_chain(chat([{"role": "user", "content": [{"type": "text", "text": "see"}, block]}]))
        assert chain is not None
        assert chain.text_bytes < 400


# --- sessions without an id -----------------------------------------------------------------------


def ids_of(index: SessionIndex, *prompts: Messages) -> list[str]:
    return [resolve(index, chat(prompt, tools=[BASH])).identity.session_id for prompt in prompts]


def test_an_idless_conversation_is_one_session() -> None:
    index = SessionIndex()
    found = ids_of(index, *(history("a", turns) for turns in range(6)))
    assert len(set(found)) == 1
    assert resolve(index, chat(history("a", 6), tools=[BASH])).identity.source is IdentitySource.FINGERPRINT


def test_strangers_with_one_task_open_sessions_of_their_own_and_stay_apart() -> None:
    index = SessionIndex()
    task: Messages = [SYSTEM, user("solve it")]
    first, second = ids_of(index, task, task)
    assert first != second
    index.answered(first, 0.0, response_id=None, call_ids=("call-1",))
    index.answered(second, 0.0, response_id=None, call_ids=("call-2",))

    def turn(call_id: str) -> Messages:
        return [*task, assistant("same words", call_id), tool(call_id, "result")]

    assert ids_of(index, turn("call-1"), turn("call-2")) == [first, second]


def test_conversations_stay_apart_once_their_messages_diverge() -> None:
    index = SessionIndex()
    task: Messages = [SYSTEM, user("solve it")]
    lines = [[*task, assistant(f"idea {n} " * 20), user(f"go on {n} " * 20)] for n in range(3)]
    ids_of(index, task, task, task)
    found = ids_of(index, *lines)
    assert len(set(found)) == 3
    longer = [[*line, assistant("more " * 30), user("and more " * 30)] for line in lines]
    assert ids_of(index, *longer) == found


def test_a_fork_of_a_conversation_is_another_session() -> None:
    index = SessionIndex()
    whole = history("a", 4)
    (original,) = {*ids_of(index, history("a", 3), whole)}
    fork = [*whole[:-2], assistant("another way " * 20), user("yes " * 50)]
    assert ids_of(index, fork) != [original]
    assert ids_of(index, history("a", 5)) == [original]


def test_a_retry_of_the_first_turn_is_the_same_session() -> None:
    index = SessionIndex()
    first = ids_of(index, history("a", 0))
    again = resolve(index, chat(history("a", 0), tools=[BASH], headers={"x-stainless-retry-count": "1"}))
    assert [again.identity.session_id] == first


def test_a_first_prompt_whose_only_request_came_to_nothing_is_taken_up_again() -> None:
    index = SessionIndex()
    task = history("a", 0)
    (first,) = ids_of(index, task)
    index.ended(first)
    assert ids_of(index, task) == [first]
    (stranger,) = ids_of(index, task)
    assert stranger != first, "it is asked again at this moment"
    index.ended(first)
    index.answered(stranger, 0.0, response_id=None)
    index.ended(stranger)
    assert ids_of(index, task) == [first]
    index.answered(first, 0.0, response_id=None)
    index.ended(first)
    assert ids_of(index, task) not in ([first], [stranger]), "who had an answer is somebody else"


def test_what_came_to_nothing_is_taken_up_by_nobody_else() -> None:
    index = SessionIndex()
    (first,) = ids_of(index, history("a", 0))
    index.ended(first)
    other_system = [{"role": "system", "content": "You are someone else."}, *history("a", 0)[1:]]
    other_task = history("b", 0)
    assert first not in ids_of(index, other_system, other_task)
    other_key = resolve(index, chat(history("a", 0), tools=[BASH], headers={"authorization": "Bearer x"}))
    assert other_key.identity.session_id != first
    assert ids_of(index, history("a", 1)) == [first], "the client goes on, whatever we took for an end"


@pytest.mark.parametrize("fields", [{"prompt": "solve it " * 100}, {"prompt": "hi"}])
def test_a_text_prompt_that_came_to_nothing_is_taken_up_again(fields: dict[str, Any]) -> None:
    index = SessionIndex()
    asked = request("/v1/completions", fields)
    first = resolve(index, asked).identity.session_id
    assert resolve(index, asked).identity.session_id != first
    third = SessionIndex()
    first = resolve(third, asked).identity.session_id
    third.ended(first)
    assert resolve(third, asked).identity.session_id == first


def test_under_a_prompt_cache_key_too() -> None:
    index = SessionIndex()
    asked = chat(history("a", 0), tools=[BASH], prompt_cache_key="k")
    first = resolve(index, asked).identity
    assert first.source is IdentitySource.PROMPT_CACHE_KEY
    index.ended(first.session_id)
    assert resolve(index, asked).identity == first
    assert resolve(index, asked).identity != first


def test_a_compacted_idless_conversation_is_found_by_its_tail() -> None:
    index = SessionIndex()
    found = ids_of(index, history("a", 4), history("a", 5))
    compacted = [SYSTEM, user("summary of what was done"), *history("a", 6)[-4:]]
    again = resolve(index, chat(compacted, tools=[BASH]))
    assert again.identity.session_id == found[0]
    assert again.turn.kind is TurnKind.RESET


def test_another_system_prompt_is_another_agent_until_the_model_has_spoken() -> None:
    index = SessionIndex()
    other = {"role": "system", "content": "You are someone else."}
    follow_up = [user("hi"), assistant("hello"), user("more")]
    first = ids_of(index, [SYSTEM, user("hi")])
    second = ids_of(index, [other, *follow_up])
    assert first != second
    dated = {"role": "system", "content": "You are someone else. It is Tuesday."}
    assert ids_of(index, [dated, *follow_up, assistant("so"), user("on")]) == second


def test_idless_text_prompts_extend_one_another_at_any_length() -> None:
    index = SessionIndex()

    def session(prompt: str) -> str:
        return resolve(
            index, request("/v1/completions", {"model": "m", "prompt": prompt})
        ).identity.session_id

    text = "".join(random.Random(7).choices("abcdefgh ", k=2000))
    one = session("one " + text[:5])
    assert [session("one " + text[:size]) for size in (9, 250, 260, 800, 2000)] == [one] * 5
    assert session("two " + text) != one
    assert session("one " + text[:800]) != one


def test_tenants_and_cache_keys_keep_equal_prompts_apart() -> None:
    index = SessionIndex()
    found = ids_of(index, history("a", 0))[0]
    other = chat(history("a", 1), tools=[BASH], headers={"authorization": "Bearer x"})
    assert resolve(index, other).identity.session_id != found


def test_a_prompt_cache_key_is_an_identity_only_while_prompts_extend() -> None:
    index = SessionIndex()

    def session(messages: Messages) -> tuple[str, IdentitySource]:
        identity = resolve(index, chat(messages, prompt_cache_key="app")).identity
        assert identity.group == "public/app"
        return identity.session_id, identity.source

    first = session(history("a", 0))
    assert first == ("public/app", IdentitySource.PROMPT_CACHE_KEY)
    second = session(history("b", 0))
    assert second[1] is IdentitySource.FINGERPRINT
    assert session(history("a", 1)) == first
    assert session(history("b", 1)) == second
    assert session(history("a", 0)) not in {first, second}


def test_a_stored_response_leads_to_its_session_and_replica() -> None:
    index = SessionIndex()
    first = resolve(index, request("/v1/responses", {"model": "m", "input": "hi"})).identity.session_id
    index.answered(first, 0.0, response_id="resp_1", replica="r2")
    body = {"model": "m", "input": "more", "previous_response_id": "resp_1"}
    again = resolve(index, request("/v1/responses", body))
    assert (again.identity.session_id, again.pinned_replica) == (first, "r2")
    assert (again.identity.source, again.turn.kind) == (IdentitySource.PREVIOUS_RESPONSE, TurnKind.MAIN)
    stranger = resolve(index, request("/v1/responses", body, {"authorization": "Bearer x"}))
    assert (stranger.identity.session_id == first, stranger.pinned_replica) == (False, None)


def test_requests_that_are_no_turns_touch_nothing() -> None:
    index = SessionIndex()
    kind(index, history("a", 1))
    counting = request("/v1/messages/count_tokens", {"model": "m", "messages": [user("x")]}, ID)
    assert resolve(index, counting).identity.session_id == "public/s"
    assert kind(index, history("a", 2)) is TurnKind.MAIN


# --- bounds ---------------------------------------------------------------------------------------


def test_memory_of_a_session_is_bounded() -> None:
    lines = SessionLines()
    for round_ in range(6):
        for turns in (50, 400):
            chain = prompt_chain(chat(history(f"r{round_}", turns, size=10)))
            assert chain is not None
            lines.place(chain)
    assert lines.main is not None
    assert len(lines.main.checkpoints) == CHECKPOINTS_MAX * 16
    assert sum(len(line.checkpoints) for line in [lines.main, *lines.others]) <= 1024


def test_tables_are_bounded_and_idle_entries_leave() -> None:
    index = SessionIndex(sessions_max=10, idle_seconds=100.0)
    for number in range(50):
        resolve(index, chat(history(str(number), 1)), now=float(number))
    assert len(index) == 10
    assert index.expire(145.0) == 5
    assert index.expire(1e9) == 5
    assert len(index) == 0
    assert index._prompts == {}
    assert index._pairs == {}


def test_a_forgotten_session_starts_afresh() -> None:
    index = SessionIndex()
    kind(index, history("a", 3))
    assert index.forget("public/s")
    assert not index.forget("public/s")
    assert kind(index, history("b", 0)) is TurnKind.MAIN
    assert len(index) == 1


def test_recent_table_rejects_senseless_bounds() -> None:
    with pytest.raises(ValueError, match="entries_max"):
        RecentTable[int](0, 1.0)
    with pytest.raises(ValueError, match="idle_seconds"):
        RecentTable[int](1, 0.0)


@given(st.integers(1, 300), st.integers(1, 300))
def test_checkpoints_find_about_what_is_shared(old: int, extra: int) -> None:
    before = prompt_chain(chat(history("a", old, size=5)))
    after = prompt_chain(chat(history("a", old + extra, size=5)))
    other = prompt_chain(chat(history("b", old, size=5)))
    assert before is not None
    assert after is not None
    assert other is not None
    line = Line.of(before)
    assert line.shared_bytes(after) == before.text_bytes
    assert line.continued_by(other) is None
    assert line.shared_bytes(other) == other.root_bytes
