"""For agents in Python: tell TAO when tools start, how far they are, and when they end.

Python's standard library only, and nothing of the rest of TAO. Whatever goes wrong here, the tool that is wrapped neither
fails nor waits: events are queued within a bound, sent by a thread, and dropped when the gateway does not take them.
"""

from tao.client.sender import Sender
from tao.client.tools import RunningTool, SessionTools, ToolEvents

__all__ = ["RunningTool", "Sender", "SessionTools", "ToolEvents"]
