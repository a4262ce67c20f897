"""A sweep as a table, and what is to be said of its points."""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from kernelgen.grading.verdict import Owner
from kernelgen.report.columns import decimal, said
from kernelgen.report.details import Line
from kernelgen.report.html.numbers import byte_size
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.table import print_line
from kernelgen.sweep.plan import name_of
from kernelgen.sweep.record import Sweep, SweepPoint

_GAP = "  "
_STYLES = {Owner.CANDIDATE: "bold red", Owner.PROBLEM: "yellow", Owner.GRADER: "yellow"}
_MARKS = {Owner.CANDIDATE: ("✗", "x"), Owner.PROBLEM: ("!", "!"), Owner.GRADER: ("?", "?")}


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    heading: str
    cell: Callable[[SweepPoint], str]
    status: bool = False


def show(found: Sweep, console: Console) -> None:
    """Print a sweep: a row for each point, what failed and why, remarks, and a closing line."""
    if found.points:
        _print_rows(found, console)
        console.print()
    for line in (*_point_lines(found), *_closing_lines(found)):
        text = printable(line.text, ascii_only=console.options.ascii_only)
        print_line(msgspec.structs.replace(line, text=text), console)


def _columns(found: Sweep) -> Iterator[_Column]:
    for name in (found.series, found.x):
        yield _Column(heading=name, cell=_size(name))
    yield _Column(heading="status", cell=lambda point: point.status.value, status=True)
    yield _Column(
        heading="time ms", cell=lambda p: "" if p.time is None else decimal(p.time.solution_ms)
    )
    for name in found.baselines:
        yield _Column(heading=f"vs {name} [95 %]", cell=_versus(name))
    yield _Column(heading="of limit", cell=_of_limit)


def _size(name: str) -> Callable[[SweepPoint], str]:
    return lambda point: byte_size(point.labels[name])


def _versus(name: str) -> Callable[[SweepPoint], str]:
    def cell(point: SweepPoint) -> str:
        speedup = None if point.time is None else point.time.speedup.get(name)
        return said(speedup, interval=True)

    return cell


def _of_limit(point: SweepPoint) -> str:
    fraction = None if point.time is None else point.time.fraction
    return "" if fraction is None else f"{fraction:.0%}"


def _print_rows(found: Sweep, console: Console) -> None:
    columns = list(_columns(found))
    ascii_only = console.options.ascii_only

    def text(column: _Column, point: SweepPoint | None) -> str:
        if point is None:
            return printable(column.heading, ascii_only=ascii_only)
        mark = f"{_mark(point, ascii_only=ascii_only)} " if column.status else ""
        return mark + (printable(column.cell(point), ascii_only=ascii_only) or "-")

    rows = (None, *found.points)
    for point in rows:
        line = Text()
        for column in columns:
            width = max(cell_len(text(column, one)) for one in rows)
            cell = text(column, point)
            padded = set_cell_size(cell, width) if column.status else cell.rjust(width)
            line.append(padded, style=_style(point) if column.status else "")
            line.append(_GAP)
        line.rstrip()
        console.print(line, soft_wrap=True, style="bold" if point is None else "")


def _mark(point: SweepPoint, *, ascii_only: bool) -> str:
    marks = ("✓", "+") if point.passed else _MARKS[point.owner]
    return marks[ascii_only]


def _style(point: SweepPoint | None) -> str:
    if point is None:
        return ""
    return "cyan" if point.passed else _STYLES[point.owner]


def _point_lines(found: Sweep) -> Iterator[Line]:
    for point in found.points:
        lines = (*printable_lines(point.reason), *point.remarks)
        if not lines:
            continue
        shade = "" if point.passed else _style(point)
        yield _line(f"{name_of(point.labels)}: {point.status.value}", shade)
        for text in lines:
            yield Line(lead="    ", folded_lead="    ", text=text, style="dim")


def _closing_lines(found: Sweep) -> Iterator[Line]:
    times = [point.time for point in found.points if point.time is not None]
    for name in found.baselines:
        said_of = Counter(time.speedup[name].says for time in times if name in time.speedup)
        counts = (f"{said_of[word]} {word}" for word in ("faster", "same", "slower"))
        yield _line(f"vs {name}: {', '.join(counts)}")
    fractions = [time.fraction for time in times if time.fraction is not None]
    if fractions:
        yield _line(f"of the limit: {min(fractions):.0%} to {max(fractions):.0%}")
    if found.method:
        yield _line(f"Times: {found.method}", "dim")
    passed = sum(point.passed for point in found.points)
    device = f" on {found.device}" if found.device else ""
    graded = len(found.points)
    missing = f"; {found.planned - graded} not graded" if found.planned > graded else ""
    yield _line(f"{found.problem}: {passed} of {graded} points passed{device}{missing}", "bold")


def _line(text: str, shade: str = "") -> Line:
    return Line(lead="", folded_lead="  ", text=text, style=shade)
