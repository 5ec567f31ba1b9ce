"""Traces of agent sessions: one session model, readers and writers of the formats in use, and a sample.

A trace says how long prompts, outputs and tool calls were, never what was in them. This package knows files
and formats. It must not know policies, engines, HTTP or what a trace is replayed for.
"""

from tao.traces.errors import BadLine, SkippedLines, TraceError, refuse
from tao.traces.formats import AUTO, FORMATS, detect_format, format_named, read_native, read_trace
from tao.traces.model import TraceSession, TraceTool, TraceTurn
from tao.traces.sample import path_named, sample_path
from tao.traces.select import Selection, select_sessions
from tao.traces.writers.native import write_native

__all__ = [
    "AUTO",
    "FORMATS",
    "BadLine",
    "Selection",
    "SkippedLines",
    "TraceError",
    "TraceSession",
    "TraceTool",
    "TraceTurn",
    "detect_format",
    "format_named",
    "path_named",
    "read_native",
    "read_trace",
    "refuse",
    "sample_path",
    "select_sessions",
    "write_native",
]
