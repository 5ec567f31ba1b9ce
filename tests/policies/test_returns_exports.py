"""What was learned is exported in steps, so that a gateway serves between them and the predictor goes on learning."""

import json
from collections.abc import Callable

import pytest

from tao.core.events import ToolCall
from tao.policies.returns import PREDICTORS, Absence, ReturnPredictor, make_predictor

TOOLS = [ToolCall(f"tool-{number}") for number in range(200)]
KEEPS_TOOLS = {"backoff-histogram", "empirical-bernstein", "per-tool-history"}


def taught(name: str) -> ReturnPredictor:
    """Told of two hundred tools, each of which takes its own time."""
    predictor = make_predictor(name)
    for number, tool in enumerate(TOOLS):
        for _ in range(3):
            predictor.learn(Absence((tool,)), 1.0 + number)
    return predictor


def exported(predictor: ReturnPredictor, between: Callable[[int], None]) -> tuple[dict[str, object], int]:
    """The state and the number of steps that it took; `between` is called after each with its number."""
    export, steps = predictor.exporting(), 0
    while True:
        try:
            next(export)
        except StopIteration as end:
            state: dict[str, object] = end.value
            return state, steps
        steps += 1
        between(steps)


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_an_export_in_steps_ends_in_the_same_state_as_one_at_once(name: str) -> None:
    predictor = taught(name)
    state, steps = exported(predictor, lambda _: None)
    assert state == predictor.export_state()
    assert steps >= 3 or name not in KEEPS_TOOLS, "two hundred tools are too many for one step"


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_what_is_learned_between_the_steps_does_not_spoil_the_export(name: str) -> None:
    predictor = taught(name)

    def learn(step: int) -> None:
        if step <= 3:
            predictor.learn(Absence((ToolCall(f"late-{step}"),)), 5.0)  # a new one
            predictor.learn(Absence((TOOLS[-step],)), 200.0 - step)  # one that is known already

    state, _ = exported(predictor, learn)
    other = make_predictor(name)
    other.import_state(json.loads(json.dumps(state)))
    for tool in (TOOLS[0], TOOLS[100]):
        before, after = predictor.predict(Absence((tool,))), other.predict(Absence((tool,)))
        assert after.quantile(0.5) == pytest.approx(before.quantile(0.5), rel=0.02)
