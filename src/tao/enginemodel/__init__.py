"""One engine model: what a serving engine does with requests, step by step, and how long it takes.

Run by the emulator in real time and by the simulator in virtual time. Pure: no clock, no I/O but profile
files.
"""

from tao.enginemodel.chain import Chain, Segment
from tao.enginemodel.engine import EngineModel
from tao.enginemodel.messages import (
    EngineEvent,
    EngineStats,
    Finished,
    FirstToken,
    Preempted,
    Request,
    RequestRefusedError,
)
from tao.enginemodel.prefix_cache import BlockObserver
from tao.enginemodel.profile import Profile, ProfileError, load_profile, profile_names

__all__ = [
    "BlockObserver",
    "Chain",
    "EngineEvent",
    "EngineModel",
    "EngineStats",
    "Finished",
    "FirstToken",
    "Preempted",
    "Profile",
    "ProfileError",
    "Request",
    "RequestRefusedError",
    "Segment",
    "load_profile",
    "profile_names",
]
