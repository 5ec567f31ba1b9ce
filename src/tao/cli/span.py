"""Options that are a span of seconds, MIN:MAX, a number in a range, or a count or one word. It must not know what they
are for.

Bad input is click's own error, with exit code 2.
"""

import math
from typing import Any

import click

from tao.traces.model import SECONDS_MAX


class NumberRange(click.FloatRange):
    """As click's own, but NaN, which is neither below nor above any bound, is refused too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class CountOrWord(click.IntRange):
    """A whole number of at least 1, or this word."""

    def __init__(self, word: str) -> None:
        super().__init__(1)
        self._word = word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == self._word else super().convert(value, param, ctx)


def seconds_range(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    """An option's callback: MIN:MAX in seconds."""
    if value is None:
        return None
    least, _, most = value.partition(":")
    try:
        bounds = float(least), float(most)
    except ValueError:
        bounds = (-1.0, 0.0)
    if not 0 <= bounds[0] <= bounds[1] <= SECONDS_MAX:
        raise click.BadParameter(f"{value!r}: give seconds as MIN:MAX, such as 2:10", ctx, param)
    return bounds
