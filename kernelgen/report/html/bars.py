"""Speedups and shares of the limit, each a row over one axis."""

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from kernelgen.grading.timing.times import Limit, Speedup
from kernelgen.report.html.numbers import interval, percent, times
from kernelgen.report.html.svg import (
    Scale,
    dot,
    drawing,
    horizontal,
    label,
    log_ticks,
    rect,
    tag,
    vertical,
)

_ROW, _AXIS = 26, 22
_MIDDLE = _ROW / 2
_BAR, _CAP = 10, 5
# The axis of speedups reaches at least this far to either side of 1.
_LEAST_FACTOR = 1.25
# A factor beyond this is no speedup of a kernel but a number that somebody wrote into a file.
_LARGEST_FACTOR = 1e6
_TONES = {"faster": "faster", "slower": "slower", "same": "same"}


def drawable(speedup: Speedup) -> bool:
    """Return whether a speedup has a place on a logarithmic axis."""
    ends = (speedup.median, *speedup.ci95)
    return all(1 / _LARGEST_FACTOR <= end <= _LARGEST_FACTOR for end in ends)


def speedup_scale(speedups: Iterable[Speedup]) -> Scale:
    """Return an axis on which all of them, and 1, have a place."""
    ends = [end for speedup in speedups for end in (speedup.median, *speedup.ci95)]
    low = min([1 / _LEAST_FACTOR, *ends])
    high = max([_LEAST_FACTOR, *ends])
    # A little room at the ends, so that a cap is not drawn over the edge.
    return Scale(low=low / 1.05, high=high * 1.05, log=True)


def speedup_bar(speedup: Speedup, scale: Scale, against: str) -> Markup:
    """Draw a bar from 1 to the median, and its interval."""
    place, one = scale.at(speedup.median), scale.at(1.0)
    low, high = (scale.at(end) for end in speedup.ci95)
    words = f"{times(speedup.median)} {interval(speedup)} against {against}: {speedup.says}"
    return drawing(
        _ROW,
        words,
        *_grid(scale, log_ticks(scale.low, scale.high)),
        rect(min(place, one), max(place, one), _MIDDLE - _BAR / 2, _BAR, _TONES[speedup.says]),
        vertical(one, 0, _ROW, "one"),
        horizontal(low, high, _MIDDLE, "whisker"),
        vertical(low, _MIDDLE - _CAP, _MIDDLE + _CAP, "whisker"),
        vertical(high, _MIDDLE - _CAP, _MIDDLE + _CAP, "whisker"),
        dot(place, _MIDDLE, "dot"),
    )


def speedup_axis(scale: Scale) -> Markup:
    """Draw the numbers below the bars."""
    ticks = log_ticks(scale.low, scale.high)
    marks = [label(scale.at(tick), 14, f"{tick:g}\N{MULTIPLICATION SIGN}") for tick in ticks]
    return drawing(_AXIS, "logarithmic axis of speedups", *marks, class_="plot axis")


SHARE = Scale(low=0.0, high=1.0)
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def limit_bar(limit: Limit, others_ms: Sequence[tuple[str, float]]) -> Markup:
    """Draw how much of the limit was reached, and with signs how much the baselines reach.

    Args:
        limit: the limit and the candidate's fraction of it.
        others_ms: name of a baseline and its time.
    """
    others = [(name, limit.limit_ms / value) for name, value in others_ms if value > 0]
    said = "".join(f", {name} {percent(share)}" for name, share in others)
    signs = [
        _diamond(SHARE.at(share)) if name == "compile" else dot(SHARE.at(share), _MIDDLE, "ring")
        for name, share in others
        if name in ("eager", "compile")
    ]
    reached = SHARE.at(limit.fraction if math.isfinite(limit.fraction) else 0.0)
    return drawing(
        _ROW,
        f"{percent(limit.fraction)} of the limit{said}",
        *_grid(SHARE, _SHARES),
        rect(SHARE.at(0.0), reached, _MIDDLE - _BAR / 2, _BAR, "candidate"),
        vertical(SHARE.at(1.0), 0, _ROW, "one"),
        *signs,
    )


def limit_axis() -> Markup:
    """Draw the numbers below the bars."""
    marks = [label(SHARE.at(share), 14, f"{share:.0%}") for share in _SHARES]
    return drawing(_AXIS, "axis of shares of the limit", *marks, class_="plot axis")


def share_bar(share: float, tone: str) -> Markup:
    """Draw a share of a whole, from 0 to 1; the number stands beside it."""
    width = min(max(share, 0.0), 1.0) * 100
    bar = tag("rect", x=0, y=5, width=f"{width:.1f}%", height=_BAR, class_=tone)
    return tag("svg", bar, class_="share", aria_hidden="true", width="100%", height=_BAR + 8)


def _grid(scale: Scale, ticks: Sequence[float]) -> list[Markup]:
    return [vertical(scale.at(tick), 0, _ROW, "grid") for tick in ticks]


def _diamond(x: float) -> Markup:
    # A nested drawing carries the percentage, for a path knows none.
    path = tag("path", d="M0 -5L5 0L0 5L-5 0Z", class_="diamond")
    place = f"{x:.2f}%"
    return tag("svg", path, x=place, y=_MIDDLE, overflow="visible", aria_hidden="true")
