"""All return predictors by name. A name is what users choose by `--predictor`; each call makes a fresh one."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from tao.policies.returns.backoff import BackoffHistogram
from tao.policies.returns.bernstein import EmpiricalBernstein
from tao.policies.returns.histories import ConstantFiveSeconds, GlobalHistory, PerToolHistory
from tao.policies.returns.port import ReturnPredictor

PREDICTORS: Mapping[str, Callable[[], ReturnPredictor]] = {
    maker.name: maker
    for maker in (BackoffHistogram, EmpiricalBernstein, ConstantFiveSeconds, GlobalHistory, PerToolHistory)
}

DEFAULT_PREDICTOR = BackoffHistogram.name
"""Chosen by its figures on held-out sources: docs/readiness.md."""


class UnknownPredictorError(ValueError):
    """No predictor has this name; the message lists those that exist."""


def make_predictor(name: str = DEFAULT_PREDICTOR) -> ReturnPredictor:
    """A fresh predictor. `UnknownPredictorError` where there is none of that name."""
    maker = PREDICTORS.get(name)
    if maker is None:
        near = get_close_matches(name, PREDICTORS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownPredictorError(f"no predictor is named {name!r}{hint} Known: {', '.join(PREDICTORS)}")
    return maker()
