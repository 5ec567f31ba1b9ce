"""Claude Code, Codex, OpenCode and mini-swe-agent, unmodified, reach a real vLLM through `tao serve`, one session each.

The model is random. Its answers are kept short: about one token in sixteen ends them, and 192 tokens do in any case.
mini-swe-agent can hand the engine a form for the answer, so that it gets a tool call and does its task; the others get
words and end with them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agent_process import agent
from tests.clients.agents import AGENTS, Job
from tests.clients.agents_kit import desk
from tests.clients.mini_swe_agent import COMPLETION_LINE
from tests.engine.vllm_replica import ReplicaOptions, VllmReplica, make_model, start_replica

# vLLM takes half a minute and more to start, and Claude Code's first prompt has 30,000 tokens and more.
pytestmark = [pytest.mark.agents, pytest.mark.slow, pytest.mark.timeout(400)]

TASK_SECONDS_MAX = 180.0
CONTEXT_TOKENS = 98_304  # Claude Code asks for 32,000 tokens beside its prompt
BLOCKS = 4096
ANSWER_TOKENS_MAX = 192
END_TOKEN = 2
MAIN_PROMPT_TOKENS_MIN = {"claude-code": 10_000, "codex": 5_000, "opencode": 5_000, "mini-swe-agent": 500}
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "echo ' + COMPLETION_LINE + '"}}\n</tool_call>'
CALL_REGEX = CALL.replace("{", r"\{").replace("}", r"\}").replace("\n", r"\n")


def ending_tokens(tokenizer: Path) -> list[int]:
    """The model's own end token and every sixteenth one that cannot be a part of CALL."""
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text())["model"]["vocab"]
    call = CALL.replace(" ", "Ġ").replace("\n", "Ċ")  # as byte-level BPE spells them
    free = sorted(number for text, number in vocabulary.items() if text not in call)
    return [END_TOKEN, *free[3::16]]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmReplica]:
    """A running vLLM with a window that fits any of the agents' prompts."""
    scratch = tmp_path_factory.mktemp("vllm")
    make_model(scratch / "words", "tiny")
    ending = ending_tokens(scratch / "words" / "tokenizer.json")
    limits = {"eos_token_id": ending, "max_new_tokens": ANSWER_TOKENS_MAX}
    (scratch / "answers").mkdir()
    (scratch / "answers" / "generation_config.json").write_text(json.dumps(limits))
    options = ReplicaOptions(
        blocks=BLOCKS,
        context_tokens_max=CONTEXT_TOKENS,
        extra_arguments=("--generation-config", str(scratch / "answers")),
    )
    with start_replica(scratch, options) as replica:
        yield replica


@pytest.mark.parametrize("name", AGENTS)
async def test_a_run_is_one_session(name: str, vllm: VllmReplica, tmp_path: Path) -> None:
    program = AGENTS[name]
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with desk(vllm.url, directory=tmp_path) as front:
        job = Job(front.url, "Say hello.", home, turns_max=3, answer_regex=CALL_REGEX)
        async with agent(program.launch(job), home, work) as running:
            assert await running.ended(TASK_SECONDS_MAX) == 0, running.story()
            await running.assert_nothing_left()
        (session,) = await front.sessions()
        usages = assert_all_finished(await front.ended())
    assert session["turns_finished"] == len(usages)
    largest = max(usages, key=lambda usage: int(usage["prompt_tokens"]))
    assert largest["prompt_tokens"] > MAIN_PROMPT_TOKENS_MIN[name]
    assert session["footprint_tokens"] == largest["prompt_tokens"] + largest["output_tokens"]
    if name == "mini-swe-agent":
        assert session["tools"] == ["bash"]


def assert_all_finished(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The usage of each turn, as the engine told it; there was no other ending."""
    assert not {event["event"] for event in events} & {"ClientLeft", "TurnFailed", "TurnStopped"}, events
    usages = [event["usage"] for event in events if event["event"] == "TurnFinished"]
    assert usages
    for usage in usages:
        assert 0 < usage["output_tokens"] <= ANSWER_TOKENS_MAX
        assert 0 <= usage["cached_tokens"] < usage["prompt_tokens"]
    return usages
