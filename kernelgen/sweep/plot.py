"""A sweep as a drawing: the share of the limit over a size, a line for each value of the series."""

import io
import math
from importlib import import_module
from typing import Any

from kernelgen.errors import UserError
from kernelgen.report.numbers import byte_size
from kernelgen.report.printable import printable
from kernelgen.sweep.record import Sweep, SweepPoint

# Lines of one colour have other marks, and the other way round: 70 lines before one comes again.
_MARKS = "os^Dv*PX<>"
_COLOURS = ("#0067a3", "#b8430a", "#00735a", "#8a3a86", "#735400", "#33404c", "#c0206a")
_MOST_TICKS = 12
# A share beyond this is no time of a kernel but a number that somebody wrote into a file.
_LARGEST_SHARE = 100.0


def check_plot() -> None:
    """Make sure, before any work is done, that a plot can be drawn.

    Raises:
        UserError: matplotlib is not installed.
    """
    _import("matplotlib")


def plot(found: Sweep) -> bytes:
    """Return the drawing of a sweep as an SVG file; the same record gives the same bytes.

    A line has a gap where a point did not pass or has no known limit.

    Raises:
        UserError: matplotlib is not installed.
    """
    matplotlib, figures = _import("matplotlib"), _import("matplotlib.figure")
    with matplotlib.rc_context({"svg.hashsalt": "kernelgen", "text.parse_math": False}):
        figure = figures.Figure(figsize=(9.5, 5.0), layout="constrained")
        _draw(found, figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(found: Sweep, axes: Any) -> None:
    where = f" on {found.device}" if found.device else ""
    axes.set_title(printable(f"{found.problem}{where}: share of the hardware's limit"))
    for index, series in enumerate(sorted({point.labels[found.series] for point in found.points})):
        points = [point for point in found.points if point.labels[found.series] == series]
        points.sort(key=lambda point: point.labels[found.x])
        axes.plot(
            [point.labels[found.x] for point in points],
            [100 * _share(point) for point in points],
            label=byte_size(series),
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKS[index % len(_MARKS)],
        )
    if found.points:
        axes.set_xscale("log", base=2)
        axes.legend(title=printable(found.series), loc="upper left", bbox_to_anchor=(1.0, 1.0))
    sizes = sorted({point.labels[found.x] for point in found.points})
    shown = sizes[:: max(1, math.ceil(len(sizes) / _MOST_TICKS))]
    axes.set_xticks(shown, [byte_size(size) for size in shown])
    axes.set_xticks([], minor=True)
    missing = sum(point.time is None or point.time.fraction is None for point in found.points)
    note = f"\n{missing} not shown, which did not pass or have no known limit" if missing else ""
    axes.set_xlabel(printable(found.x) + note)
    axes.set_ylabel("% of the limit")
    axes.set_ylim(bottom=0)
    axes.axhline(100, color="black", linestyle="--", linewidth=1)
    axes.grid(axis="y", alpha=0.4)


def _share(point: SweepPoint) -> float:
    if point.time is None or point.time.fraction is None:
        return math.nan
    return min(max(point.time.fraction, 0.0), _LARGEST_SHARE)


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        message = "a plot needs matplotlib; install it with `pip install 'kernelgen[plot]'`"
        raise UserError(message) from error
