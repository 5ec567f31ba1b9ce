"""Looking at one engine from outside, as a client would: what it tells (`check`), and how fast it is (`fit`).

Everything sent is small, bounded and announced by whoever calls. It must not know the gateway, sessions or policies.
"""

from tao.inspection.check import Check, Finding, Level, check_engine
from tao.inspection.client import EngineClient, EngineError
from tao.inspection.fit import Fit, FitError, FitLimits, fit_engine, planned_load
from tao.inspection.profile_text import profile_text

__all__ = [
    "Check",
    "EngineClient",
    "EngineError",
    "Finding",
    "Fit",
    "FitError",
    "FitLimits",
    "Level",
    "check_engine",
    "fit_engine",
    "planned_load",
    "profile_text",
]
