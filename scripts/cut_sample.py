"""Cut the sample that comes with the package out of a folder of full traces; the same bytes each time.

    python scripts/cut_sample.py ../shared/traces

Sessions are taken whole. From each source those are candidates that a demonstration of some minutes can hold
(turns, longest prompt, time in tools below the limits here); among them, evenly spaced ones by their longest
prompt. The SWE-bench sessions are the longer half, so that 32 of them at once do not fit into two replicas.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tao.traces import TraceSession, read_trace, sample_path, write_native


@dataclass(frozen=True, slots=True)
class Cut:
    source: str
    count: int
    turns: tuple[int, int]
    peak_prompt_tokens: tuple[int, int]
    tool_seconds_max: float
    human_seconds_max: float = 300.0
    output_tokens_max: int = 15_000


CUTS = (
    Cut("mini_swe_agent_swebench_verified", 31, (20, 60), (18_000, 48_000), 90.0),
    Cut("claude_code_go_tool", 3, (8, 40), (20_000, 70_000), 90.0),
    Cut("claude_code_ts_app", 3, (8, 40), (20_000, 70_000), 90.0),
    Cut("claude_code_go_cli", 1, (8, 40), (20_000, 90_000), 120.0),
    Cut("claude_code_skills", 1, (8, 40), (20_000, 70_000), 90.0),
    Cut("codex_skills", 1, (8, 40), (20_000, 70_000), 90.0, human_seconds_max=600.0),
)


def fits(session: TraceSession, cut: Cut) -> bool:
    return (
        session.parent is None
        and cut.turns[0] <= len(session.turns) <= cut.turns[1]
        and cut.peak_prompt_tokens[0] <= session.peak_prompt_tokens <= cut.peak_prompt_tokens[1]
        and sum(turn.tool_seconds for turn in session.turns) <= cut.tool_seconds_max
        and sum(turn.human_seconds for turn in session.turns) <= cut.human_seconds_max
        and sum(turn.output_tokens for turn in session.turns) <= cut.output_tokens_max
    )


def chosen(folder: Path, cut: Cut) -> list[TraceSession]:
    candidates = [s for s in read_trace(folder / f"{cut.source}.jsonl.gz") if fits(s, cut)]
    candidates.sort(key=lambda s: (s.peak_prompt_tokens, s.session_id))
    if len(candidates) < cut.count:
        raise SystemExit(f"{cut.source}: only {len(candidates)} sessions fit, {cut.count} are wanted")
    last = len(candidates) - 1
    steps = max(cut.count - 1, 1)
    return [candidates[last * i // steps if cut.count > 1 else last // 2] for i in range(cut.count)]


def interleaved(groups: list[list[TraceSession]]) -> list[TraceSession]:
    """Spread each group evenly over the file, so that the first n lines are a sample of all."""
    placed = [
        ((position + 0.5) / len(group), rank, session)
        for rank, group in enumerate(groups)
        for position, session in enumerate(sorted(group, key=lambda s: s.session_id))
    ]
    return [session for _, _, session in sorted(placed, key=lambda item: item[:2])]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/traces")
    sessions = interleaved([chosen(folder, cut) for cut in CUTS])
    write_native(sample_path(), sessions)
    turns = sum(len(s.turns) for s in sessions)
    peak = sum(s.peak_prompt_tokens for s in sessions)
    print(f"{sample_path()}: {len(sessions)} sessions, {turns} turns, {peak} tokens at their longest prompts")


if __name__ == "__main__":
    main()
