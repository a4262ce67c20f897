"""Speedups drawn as SVG that scales with the page: x in percent of the width, y in pixels.

So lines and letters keep their size at every width. Colours are classes that `page.css` knows, in
light and in dark.
"""

import math
from collections.abc import Iterable

import msgspec
from markupsafe import Markup, escape

from kernelgen.grading.timing.times import Speedup
from kernelgen.report.numbers import interval, times
from kernelgen.report.printable import printable_block

# Left and right of what is drawn, so that a label at an end has room.
_MARGIN_PERCENT = 4.0
_MOST_TICKS = 7
# An axis that spans less than this factor has equal steps.
_NARROW = 6.0
_ROW, _AXIS, _BAR, _CAP = 26, 22, 10, 5
# The axis reaches at least this far to either side of 1.
_LEAST_FACTOR = 1.25
# A factor beyond this is no speedup of a kernel but a number that somebody wrote into a file.
_LARGEST_FACTOR = 1e6


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """A logarithmic axis from `low` to `high`, both above 0."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value in percent of the width; beyond an end, the end."""
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return _MARGIN_PERCENT + share * (100 - 2 * _MARGIN_PERCENT)


def drawable(speedup: Speedup) -> bool:
    """Return whether a speedup has a place on a logarithmic axis."""
    ends = (speedup.median, *speedup.ci95)
    return all(1 / _LARGEST_FACTOR <= end <= _LARGEST_FACTOR for end in ends)


def speedup_scale(speedups: Iterable[Speedup]) -> Scale:
    """Return an axis on which all of them, and 1, have a place."""
    ends = [end for speedup in speedups for end in (speedup.median, *speedup.ci95)]
    low, high = min([1 / _LEAST_FACTOR, *ends]), max([_LEAST_FACTOR, *ends])
    # A little room at the ends, so that a cap is not drawn over the edge.
    return Scale(low=low / 1.05, high=high * 1.05)


def speedup_bar(speedup: Speedup, scale: Scale, against: str) -> Markup:
    """Draw a bar from 1 to the median, and its interval."""
    place, one = scale.at(speedup.median), scale.at(1.0)
    low, high = (scale.at(end) for end in speedup.ci95)
    left, middle = min(place, one), _ROW / 2
    return drawing(
        _ROW,
        f"{times(speedup.median)} {interval(speedup)} against {against}: {speedup.says}",
        *(_line(scale.at(t), 0, _ROW, "grid") for t in log_ticks(scale.low, scale.high)),
        tag(
            "rect",
            x=_percent(left),
            y=middle - _BAR / 2,
            width=_percent(max(place, one) - left),
            height=_BAR,
            class_=speedup.says,
        ),
        _line(one, 0, _ROW, "one"),
        tag("line", x1=_percent(low), x2=_percent(high), y1=middle, y2=middle, class_="whisker"),
        _line(low, middle - _CAP, middle + _CAP, "whisker"),
        _line(high, middle - _CAP, middle + _CAP, "whisker"),
        tag("circle", cx=_percent(place), cy=middle, r=3.5, class_="dot"),
    )


def speedup_axis(scale: Scale) -> Markup:
    """Draw the numbers below the bars."""
    marks = (
        tag(
            "text",
            f"{tick:g}\N{MULTIPLICATION SIGN}",
            x=_percent(scale.at(tick)),
            y=14,
            text_anchor="middle",
        )
        for tick in log_ticks(scale.low, scale.high)
    )
    return drawing(_AXIS, "logarithmic axis of speedups", *marks)


def drawing(height: int, title: str, *content: Markup) -> Markup:
    """Return an image as wide as its place, with what it shows in words."""
    inner = (tag("title", title), *content)
    return tag("svg", *inner, role="img", width="100%", height=height)


def tag(name: str, *content: Markup | str, **attributes: object) -> Markup:
    """Return an element; numbers are rounded, text is escaped and made printable.

    A name's underscores stand for `-`, and one at its end for nothing, as in `class_`.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
    )
    inner = "".join(
        part if isinstance(part, Markup) else escape(printable_block(part)) for part in content
    )
    return Markup(f"<{name}{written}>{inner}</{name}>") if inner else Markup(f"<{name}{written}/>")  # noqa: S704 - name and keys are ours, all else is escaped


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return a few round numbers between two, 1 among them if it lies between."""
    if high / low < _NARROW:
        rough = (high - low) / (_MOST_TICKS - 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
        count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return tuple(round(index * step, 12) for index in count)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in range(first, last + 1) for d in digits]
        ticks = [tick for tick in found if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            return tuple(ticks)
    every = math.ceil((last - first) / _MOST_TICKS)
    exponents = (e for e in range(first, last + 1) if e % every == 0)
    return tuple(10.0**e for e in exponents if low <= 10.0**e <= high)


def _line(x: float, top: float, bottom: float, class_: str) -> Markup:
    return tag("line", x1=_percent(x), x2=_percent(x), y1=top, y2=bottom, class_=class_)


def _percent(value: float) -> str:
    return f"{_short(value)}%"


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
