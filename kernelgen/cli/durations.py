"""A number of seconds as a command line option."""

import math
from typing import Any

import click


class Duration(click.FloatRange):
    """Seconds above 0; `nan` and `inf`, which Python takes for numbers, are none."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds; fails as click's own types do."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds
