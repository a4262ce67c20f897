"""A sweep on a console: what failed and why, a row for each point, and the sums."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from rich.console import Console

from kernelgen.grading.timing.times import Speedup
from kernelgen.report.columns import Tone, decimal, speedup_column, tone_of
from kernelgen.report.numbers import byte_size
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.table import Column, Line, indented, print_line, print_table
from kernelgen.sweep.plan import name_of
from kernelgen.sweep.record import PointTime, Sweep, SweepPoint


def show(found: Sweep, console: Console) -> None:
    """Print a sweep."""
    for line in _point_lines(found):
        print_line(line, console)
    if found.points:
        columns = list(_columns(found))
        print_table(columns, found.points, console)
        console.print()
    for line in _closing_lines(found):
        print_line(line, console)


def _columns(found: Sweep) -> Iterator[Column[SweepPoint]]:
    for name in (found.series, found.x):
        yield Column(heading=printable(name), cell=partial(_size, name), number=True)
    yield Column(
        heading="status",
        cell=lambda point: f"{_tone(point).sign} {point.status.value}",
        style=lambda point: _tone(point).style,
    )
    yield _timed("time\nms", 1, lambda time: decimal(time.solution_ms))
    for name in found.baselines:
        yield speedup_column(name, partial(_speedup, name), ranks=(5, 4, 3))
    yield _timed(
        "of\nlimit", 2, lambda time: "" if time.fraction is None else f"{time.fraction:.0%}"
    )


def _tone(point: SweepPoint) -> Tone:
    return tone_of(point.owner, passed=point.passed)


def _size(name: str, point: SweepPoint) -> str:
    return byte_size(point.labels[name])


def _timed(heading: str, rank: int, cell: Callable[[PointTime], str]) -> Column[SweepPoint]:
    return Column(
        heading=heading,
        cell=lambda point: "" if point.time is None else cell(point.time),
        number=True,
        rank=rank,
    )


def _speedup(name: str, point: SweepPoint) -> Speedup | None:
    return None if point.time is None else point.time.speedup.get(name)


def _point_lines(found: Sweep) -> Iterator[Line]:
    for point in found.points:
        lines = (*printable_lines(point.reason), *point.remarks)
        if lines:
            shade = "" if point.passed else _tone(point).style
            yield Line(text=f"{name_of(point.labels)}: {point.status.value}", style=shade)
            yield from map(indented, lines)
            yield Line(text="")


def _closing_lines(found: Sweep) -> Iterator[Line]:
    times = [point.time for point in found.points if point.time is not None]
    for name in found.baselines:
        says = Counter(time.speedup[name].says for time in times if name in time.speedup)
        counts = (f"{says[word]} {word}" for word in ("faster", "same", "slower"))
        yield Line(text=f"vs {name}: {', '.join(counts)}")
    fractions = [time.fraction for time in times if time.fraction is not None]
    if fractions:
        yield Line(text=f"of the limit: {min(fractions):.0%} to {max(fractions):.0%}")
    if found.method:
        yield Line(text=f"Times: {found.method}", style="dim")
    passed = sum(point.passed for point in found.points)
    device = f" on {found.device}" if found.device else ""
    graded = len(found.points)
    missing = f"; {found.planned - graded} not graded" if found.planned > graded else ""
    text = f"{found.problem}: {passed} of {graded} points passed{device}{missing}"
    yield Line(text=text, style="bold")
