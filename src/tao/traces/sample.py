"""Traces as people name them: a file, a folder, or the sample that comes with the package: 40 real sessions, for the demo
and for a first try.

`scripts/cut_sample.py` cut the sample; sources and licences are in `samples/NOTICE.md`.
"""

from pathlib import Path

from tao.traces.errors import TraceError


def sample_path() -> Path:
    """The sample in our own format: about 30 SWE-bench sessions of mini-SWE-agent, the rest Claude Code and
    Codex.
    """
    return Path(__file__).parent / "samples" / "agents-40.jsonl.gz"


def path_named(name: str) -> Path:
    """The file or folder of that name; the word "sample" names the one that comes with the package.

    Raises `TraceError` where the name is empty: it would be the present folder.
    """
    if not name:
        raise TraceError('the name of a trace is empty; name a file, a folder, or "sample"')
    return sample_path() if name == "sample" else Path(name)
