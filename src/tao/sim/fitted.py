"""Sessions drawn from distributions fitted to recorded ones: as many as wanted, none of them a copy.

The fit is the empirical one: first prompts, numbers of turns, and what happens from one turn to the next (growth or
compaction, output, tool, human wait, taken together) are resampled from the trace. So tails and the ties between a tool
and what it adds to the prompt stay, while the order of events within one recorded session does not.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tao.traces import TraceSession, TraceTool, TraceTurn

PROMPT_TOKENS_MIN = 16


@dataclass(frozen=True, slots=True)
class Opening:
    """How a session begins: the first prompt, and the tokens it shares with others of its source."""

    prompt_tokens: int
    turns: int
    source: str
    agent: str
    system_tokens: int | None
    tool_tokens: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """From one turn to the next. `added_tokens`: beyond prompt and output; None for a new prefix of `prompt_tokens`."""

    output_tokens: int
    tool: TraceTool | None
    tools: tuple[TraceTool, ...]
    user_gap_seconds: float | None
    added_tokens: int | None
    prompt_tokens: int


class FittedSessions:
    """Distributions fitted to `sessions` (at least one). Sub-agents are drawn as sessions of their own."""

    def __init__(self, sessions: Sequence[TraceSession]) -> None:
        if not sessions:
            raise ValueError("nothing can be fitted to no session")
        self._openings = [
            Opening(s.turns[0].prompt_tokens, len(s.turns), s.source, s.agent, s.system_tokens, s.tool_tokens)
            for s in sessions
        ]
        self._last_outputs = [session.turns[-1].output_tokens for session in sessions]
        self._steps = [step for session in sessions for step in _steps(session)]

    def draw(self, count: int, seed: int) -> list[TraceSession]:
        """`count` sessions, named fitted-0 and so on; the same for the same seed."""
        chance = random.Random(f"{seed} fitted sessions")  # noqa: S311 - repeatable, not a secret
        return [self._session(f"fitted-{number}", chance) for number in range(count)]

    def _session(self, name: str, chance: random.Random) -> TraceSession:
        opening = chance.choice(self._openings)
        prompt_tokens, prefix_reset = max(opening.prompt_tokens, PROMPT_TOKENS_MIN), False
        turns: list[TraceTurn] = []
        for _ in range(opening.turns - 1):
            step = chance.choice(self._steps)
            turns.append(
                TraceTurn(
                    prompt_tokens=prompt_tokens,
                    output_tokens=step.output_tokens,
                    tool=step.tool,
                    tools=step.tools,
                    user_gap_seconds=step.user_gap_seconds,
                    prefix_reset=prefix_reset,
                )
            )
            prefix_reset = step.added_tokens is None
            if step.added_tokens is None:
                prompt_tokens = max(min(step.prompt_tokens, prompt_tokens), PROMPT_TOKENS_MIN)
            else:
                prompt_tokens += step.output_tokens + step.added_tokens
        last = chance.choice(self._last_outputs)
        turns.append(TraceTurn(prompt_tokens=prompt_tokens, output_tokens=last, prefix_reset=prefix_reset))
        return TraceSession(
            session_id=name,
            source=opening.source,
            agent=opening.agent,
            system_tokens=opening.system_tokens,
            tool_tokens=opening.tool_tokens,
            turns=tuple(turns),
        )


def _steps(session: TraceSession) -> list[Step]:
    steps = []
    for index, turn in enumerate(session.turns[:-1]):
        following = session.turns[index + 1].prompt_tokens
        grown = max(0, following - turn.prompt_tokens - turn.output_tokens)
        steps.append(
            Step(
                output_tokens=turn.output_tokens,
                tool=turn.tool,
                tools=turn.tools,
                user_gap_seconds=turn.user_gap_seconds,
                added_tokens=None if session.starts_new_prefix(index + 1) else grown,
                prompt_tokens=following,
            )
        )
    return steps
