"""Where the sample that comes with the package lies: 40 real sessions, for the demo and for a first try.

`scripts/cut_sample.py` cut it; sources and licences are in `samples/NOTICE.md`.
"""

from pathlib import Path


def sample_path() -> Path:
    """The sample in our own format: about 30 SWE-bench sessions of mini-SWE-agent, the rest Claude Code and
    Codex.
    """
    return Path(__file__).parent / "samples" / "agents-40.jsonl.gz"
