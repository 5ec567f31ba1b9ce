"""When will a session come back from its tools? Predictors of return times: the port, and those that fill it. No I/O.

`port` says what is asked and answered; `backoff` is our own predictor, `bernstein` the paper's, `histories` what they are
compared with; `catalogue` names them all. They see names and times, never arguments or results.
"""

from tao.policies.returns.backoff import BackoffHistogram
from tao.policies.returns.bernstein import EmpiricalBernstein
from tao.policies.returns.calibration import ReturnCalibration, ToolCalibration
from tao.policies.returns.catalogue import (
    DEFAULT_PREDICTOR,
    PREDICTORS,
    UnknownPredictorError,
    make_predictor,
)
from tao.policies.returns.forecast import PointForecast, chance_within, remaining_seconds
from tao.policies.returns.port import Absence, Forecast, LearnedStateError, ReturnPredictor

__all__ = [
    "DEFAULT_PREDICTOR",
    "PREDICTORS",
    "Absence",
    "BackoffHistogram",
    "EmpiricalBernstein",
    "Forecast",
    "LearnedStateError",
    "PointForecast",
    "ReturnCalibration",
    "ReturnPredictor",
    "ToolCalibration",
    "UnknownPredictorError",
    "chance_within",
    "make_predictor",
    "remaining_seconds",
]
