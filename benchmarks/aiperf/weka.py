"""A small trace in Weka's form: sessions whose prompts grow by a tool's result each turn, one sub-agent in each.

Everything in it is made up; times are seconds from a session's start, prompts are blocks of BLOCK_TOKENS tokens that share
their prefix with the turn before.
"""

import json
from pathlib import Path

BLOCK_TOKENS = 64
FIRST_BLOCKS = 8
BLOCKS_A_TURN = 2
OUTPUT_TOKENS = 24
TURN_SECONDS = 1.0


def write_traces(directory: Path, sessions: int, turns: int) -> int:
    """One file a session; the number of requests in them, those of the sub-agents included."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(sessions):
        main = requests(1_000 * number, turns, 0.0)
        inner = requests(1_000 * number + 500, 2, 1.5)
        main.insert(2, sub_agent(inner))
        document = {"id": f"trace-{number}", "models": ["tiny"], "block_size": BLOCK_TOKENS, "requests": main}
        more = {"hash_id_scope": "local", "tool_tokens": 0, "system_tokens": 0}
        (directory / f"trace-{number}.json").write_text(json.dumps({**document, **more}))
    return sessions * (turns + 2)


def requests(first_block: int, turns: int, start_seconds: float) -> list[dict[str, object]]:
    """A conversation: each prompt extends the one before."""
    made: list[dict[str, object]] = []
    for turn in range(turns):
        blocks = [first_block + block for block in range(FIRST_BLOCKS + BLOCKS_A_TURN * turn)]
        made.append(
            {
                "t": round(start_seconds + turn * TURN_SECONDS, 3),
                "type": "s",
                "model": "tiny",
                "in": len(blocks) * BLOCK_TOKENS,
                "out": OUTPUT_TOKENS,
                "hash_ids": blocks,
                "input_types": ["text"] if turn == 0 else ["tool_result"],
                "output_types": ["tool_use"],
                "stop": "tool_use" if turn < turns - 1 else "end_turn",
                "ttft": 0.1,
                "api_time": 0.4,
                "think_time": 0.6,
            }
        )
    return made


def sub_agent(inner: list[dict[str, object]]) -> dict[str, object]:
    """The marker in its parent's list, with the requests of the sub-agent."""
    return {
        "t": 1.5,
        "type": "subagent",
        "agent_id": "agent_001",
        "subagent_type": "Explore",
        "duration_ms": 2_000,
        "total_tokens": 2_000,
        "tool_use_count": 2,
        "status": "completed",
        "requests": inner,
        "models": ["tiny"],
        "tool_tokens": 0,
        "system_tokens": 0,
    }
