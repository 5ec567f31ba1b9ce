"""Which part of a policy predicts returns, and with which predictor: for whoever chooses, saves or shows it.

A policy has such a part where its `readiness` is a `ToolReadiness`, the user's own policies included. It must not know
where a predictor is kept or shown.
"""

from tao.core.ports import Policy
from tao.policies.readiness import ToolReadiness
from tao.policies.returns import make_predictor


class NoPredictionError(ValueError):
    """The policy predicts no returns, so there is no predictor to choose or to save."""


def prediction_of(policy: Policy) -> ToolReadiness | None:
    """The part that predicts returns; None where the policy predicts none."""
    readiness = getattr(policy, "readiness", None)
    return readiness if isinstance(readiness, ToolReadiness) else None


def predicting(policy: Policy, asked_for: str) -> ToolReadiness:
    """The same for one who cannot do without; `NoPredictionError` names `asked_for`, the option that has no meaning."""
    readiness = prediction_of(policy)
    if readiness is None:
        raise NoPredictionError(
            f"policy {policy.name!r} predicts no returns, so {asked_for} means nothing: leave it out, or choose tao"
        )
    return readiness


def choose_predictor(policy: Policy, name: str) -> None:
    """Let a fresh policy predict returns by the predictor of this name (`tao.policies.returns.PREDICTORS`).

    `UnknownPredictorError` lists the names; `NoPredictionError` where the policy predicts none.
    """
    predicting(policy, "a predictor").predictor = make_predictor(name)
