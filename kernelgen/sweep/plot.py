"""A sweep as a drawing: the share of the limit over a size, a line for each value of the series.

One SVG file that stands alone, without scripts. The same record gives the same bytes.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

from kernelgen.report.html.numbers import byte_size, percent
from kernelgen.report.html.svg import tag
from kernelgen.sweep.marks import STYLE, line_of, mark_of
from kernelgen.sweep.plan import name_of
from kernelgen.sweep.record import Sweep, SweepPoint

_WIDTH, _LEAST_HEIGHT = 860, 470
_LEFT, _RIGHT, _TOP, _BELOW = 64, 690, 64, 78
_LEGEND, _LEGEND_ROW = 712, 23
_MOST_SHARES, _MOST_SIZES = 6, 12
# A share beyond this is no time of a kernel but a number that somebody wrote into a file.
_LARGEST_SHARE = 100.0


class _Frame:
    """Where sizes and shares lie in the drawing.

    Args:
        found: the sweep.
    """

    def __init__(self, found: Sweep) -> None:
        self.sizes = sorted({point.labels[found.x] for point in found.points})
        self.series = sorted({point.labels[found.series] for point in found.points})
        self.height = max(_LEAST_HEIGHT, _TOP + _LEGEND_ROW * (len(self.series) + 2))
        self.bottom = self.height - _BELOW
        highest = max((_share(point) or 0.0 for point in found.points), default=0.0)
        self.step = 0.25
        while highest > self.step * _MOST_SHARES:
            self.step *= 2
        self.top_share = max(1.0, self.step * math.ceil(highest / self.step))

    def x(self, size: int) -> float:
        """Return the place of a size, by its logarithm; a single size is in the middle."""
        low, high = self.sizes[0], self.sizes[-1]
        part = math.log(size / low) / math.log(high / low) if low < high else 0.5
        # A little room, so that no mark touches the frame.
        return _LEFT + 18 + part * (_RIGHT - _LEFT - 36)

    def y(self, share: float) -> float:
        """Return the place of a share of the limit."""
        return self.bottom - share / self.top_share * (self.bottom - _TOP)


def plot(found: Sweep) -> str:
    """Return the drawing of a sweep as the text of an SVG file."""
    frame = _Frame(found)
    where = f" on {found.device}" if found.device else ""
    title = f"{found.problem}{where}: share of the hardware's limit"
    content = (
        tag("title", title),
        tag("style", STYLE),
        tag("rect", width=_WIDTH, height=frame.height, class_="paper"),
        _text(_LEFT, 30, title, class_="head"),
        *_grid(frame, found),
        *(part for series in frame.series for part in _line(frame, found, series)),
        *_legend(frame, found),
    )
    root = tag(
        "svg",
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {frame.height}",
        width=_WIDTH,
        height=frame.height,
        role="img",
    )
    return f"{root}\n"


def _grid(frame: _Frame, found: Sweep) -> Iterator[Markup]:
    for index in range(round(frame.top_share / frame.step) + 1):
        share = index * frame.step
        y = frame.y(share)
        yield tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="grid")
        yield _text(_LEFT - 8, y + 4, f"{share:.0%}", anchor="end")
    whole = frame.y(1.0)
    yield tag("line", x1=_LEFT, x2=_RIGHT, y1=whole, y2=whole, class_="whole")
    every = max(1, math.ceil(len(frame.sizes) / _MOST_SIZES))
    for size in frame.sizes[::every]:
        x = frame.x(size)
        yield tag("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 5, class_="tick")
        yield _text(x, frame.bottom + 20, byte_size(size), anchor="middle")
    middle = (_LEFT + _RIGHT) / 2
    yield _text(middle, frame.bottom + 42, f"{found.x}, logarithmic", anchor="middle")
    missing = sum(_share(point) is None for point in found.points)
    if missing:
        points = "1 point" if missing == 1 else f"{missing} points"
        note = f"not shown: {points} without a share, which did not pass or have no known limit"
        yield _text(middle, frame.bottom + 64, note, anchor="middle")


def _line(frame: _Frame, found: Sweep, series: int) -> Iterator[Markup]:
    """Draw the points of one series, joined but where one is missing."""
    index = frame.series.index(series)
    points = [point for point in found.points if point.labels[found.series] == series]
    points.sort(key=lambda point: point.labels[found.x])
    for known, run in groupby(points, key=lambda point: _share(point) is not None):
        if known:
            yield from _joined(frame, found, list(run), index)


def _joined(
    frame: _Frame, found: Sweep, points: Sequence[SweepPoint], index: int
) -> Iterator[Markup]:
    places = [(frame.x(p.labels[found.x]), frame.y(_share(p) or 0.0)) for p in points]
    yield line_of(index, places)
    for point, (x, y) in zip(points, places, strict=True):
        yield mark_of(index, x, y, _words(point))


def _legend(frame: _Frame, found: Sweep) -> Iterator[Markup]:
    yield _text(_LEGEND, _TOP + 4, found.series, class_="head")
    for index, series in enumerate(frame.series):
        y = _TOP + _LEGEND_ROW * (index + 1)
        yield line_of(index, [(_LEGEND, y), (_LEGEND + 32, y)])
        yield mark_of(index, _LEGEND + 16, y)
        yield _text(_LEGEND + 42, y + 4, byte_size(series))


def _words(point: SweepPoint) -> str:
    share, time = _share(point), point.time
    if share is None or time is None:
        return name_of(point.labels)
    return f"{name_of(point.labels)}: {percent(share)} of the limit, {time.solution_ms:.4g} ms"


def _share(point: SweepPoint) -> float | None:
    if point.time is None or point.time.fraction is None:
        return None
    return min(max(point.time.fraction, 0.0), _LARGEST_SHARE)


def _text(x: float, y: float, text: str, *, anchor: str = "start", class_: str = "word") -> Markup:
    return tag("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_)
