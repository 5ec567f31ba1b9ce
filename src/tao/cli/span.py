"""Options that are a span of seconds, MIN:MAX. It must not know what is spanned.

Bad input is click's own error, with exit code 2.
"""

import click


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
    if not 0 <= bounds[0] <= bounds[1] < float("inf"):
        raise click.BadParameter(f"{value!r}: give seconds as MIN:MAX, such as 2:10", ctx, param)
    return bounds
