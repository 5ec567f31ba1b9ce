"""Traces of agent sessions: one session model, readers and writers of the formats in use, and a sample.

A trace says how long prompts, outputs and tool calls were, never what was in them. This package knows files
and formats. It must not know policies, engines, HTTP or what a trace is replayed for.
"""

from tao.traces.errors import BadLine, SkippedLines, TraceError, refuse
from tao.traces.model import TraceSession, TraceTool, TraceTurn
from tao.traces.native import read_native, write_native
from tao.traces.sample import sample_path
from tao.traces.select import Selection, select_sessions

__all__ = [
    "BadLine",
    "Selection",
    "SkippedLines",
    "TraceError",
    "TraceSession",
    "TraceTool",
    "TraceTurn",
    "read_native",
    "refuse",
    "sample_path",
    "select_sessions",
    "write_native",
]
