"""The load client: recorded agent sessions replayed against an OpenAI-compatible endpoint, and measured.

It takes sessions from `tao.traces` and hands turns to `tao.record`. It must not know what stands behind the
endpoint: an engine, a gateway, or the emulator.
"""

from tao.replay.config import EndpointError, ReplayConfig, ToldOfTools
from tao.replay.progress import ReplayProgress
from tao.replay.run import Replay, replay

__all__ = ["EndpointError", "Replay", "ReplayConfig", "ReplayProgress", "ToldOfTools", "replay"]
