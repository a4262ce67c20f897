"""Drawings as SVG that scales with the page: x in percent of the width, y in pixels.

So lines and letters keep their size at every width. Colours are classes that `page.css` knows, in
light and in dark.
"""

import math

import msgspec
from markupsafe import Markup, escape

from kernelgen.report.printable import printable_block

# Left and right of what is drawn, so that a label at an end has room.
_MARGIN_PERCENT = 4.0
_MOST_TICKS = 7
_NARROW = 6.0


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value lies between the left and the right.

    Attributes:
        low, high: the ends, low below high; above 0 where it is logarithmic.
        log: equal factors are equal lengths.
    """

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value in percent of the width; beyond an end, the end."""
        inside = min(max(value, self.low), self.high)
        share = (
            math.log(inside / self.low) / math.log(self.high / self.low)
            if self.log
            else (inside - self.low) / (self.high - self.low)
        )
        return _MARGIN_PERCENT + share * (100 - 2 * _MARGIN_PERCENT)


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


def drawing(height: int, title: str, *content: Markup, class_: str = "plot") -> Markup:
    """Return an image as wide as its place, with what it shows in words."""
    inner = (tag("title", title), *content)
    return tag("svg", *inner, class_=class_, role="img", width="100%", height=height)


def rect(left: float, right: float, top: float, height: float, class_: str) -> Markup:
    """Return a bar between two places in percent."""
    width = max(right - left, 0.0)
    return tag("rect", x=_percent(left), y=top, width=_percent(width), height=height, class_=class_)


def vertical(x: float, top: float, bottom: float, class_: str) -> Markup:
    """Return a vertical line."""
    return tag("line", x1=_percent(x), x2=_percent(x), y1=top, y2=bottom, class_=class_)


def horizontal(left: float, right: float, y: float, class_: str) -> Markup:
    """Return a horizontal line."""
    return tag("line", x1=_percent(left), x2=_percent(right), y1=y, y2=y, class_=class_)


def dot(x: float, y: float, class_: str, radius: float = 3.5) -> Markup:
    """Return a filled circle."""
    return tag("circle", cx=_percent(x), cy=y, r=radius, class_=class_)


def label(x: float, y: float, text: str, anchor: str = "middle") -> Markup:
    """Return text at a place; `anchor` is `start`, `middle` or `end`."""
    return tag("text", text, x=_percent(x), y=y, text_anchor=anchor)


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return a few round numbers between two, 1 among them if it lies between."""
    if high / low < _NARROW:
        return _round_steps(low, high)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in range(first, last + 1) for d in digits]
        ticks = [tick for tick in found if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            return tuple(ticks)
    step = math.ceil((last - first) / _MOST_TICKS)
    exponents = (e for e in range(first, last + 1) if e % step == 0)
    return tuple(10.0**e for e in exponents if low <= 10.0**e <= high)


def _round_steps(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return tuple(round(index * step, 12) for index in count)


def _percent(value: float) -> str:
    return f"{_short(value)}%"


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
