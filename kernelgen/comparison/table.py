"""A comparison of two runs as a table on a terminal, or as plain aligned columns elsewhere."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from kernelgen.comparison.machines import in_words
from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.errors import ExitCode
from kernelgen.report.columns import decimal, speedup_text
from kernelgen.report.details import Line
from kernelgen.report.printable import printable
from kernelgen.report.table import print_line, shorten

_GAP = "  "
_LEAST_NAME_CELLS = 12
_FAILURES = (Outcome.BROKE, Outcome.REGRESSED)
# The word says it; cyan and red are told apart with every common colour blindness.
_STYLES = {
    Outcome.BROKE: "bold red",
    Outcome.REGRESSED: "bold red",
    Outcome.NOT_JUDGED: "yellow",
    Outcome.NOT_COMPARED: "yellow",
    Outcome.FASTER: "cyan",
    Outcome.MENDED: "cyan",
}
_MARKS = {
    Outcome.BROKE: ("✗", "x"),
    Outcome.REGRESSED: ("✗", "x"),
    Outcome.NOT_JUDGED: ("?", "?"),
    Outcome.NOT_COMPARED: ("?", "?"),
    Outcome.SLOWER: ("!", "!"),
    Outcome.FASTER: ("✓", "+"),
    Outcome.MENDED: ("✓", "+"),
}


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column; a terminal that is too narrow loses those of the highest `rank` first."""

    heading: str
    cell: Callable[[Compared], str]
    rank: int = 0
    number: bool = False


def _milliseconds(value: float | None) -> str:
    return "" if value is None else decimal(value)


def _status(one: Compared) -> str:
    old, new = one.old_status, one.new_status
    if old is None or new is None or old is new:
        shown = new or old
        return "" if shown is None else shown.value
    return f"{new.value}, was {old.value}"


def _by(one: Compared) -> str:
    if one.speed is None:
        return ""
    return f"time, vs {one.baseline}" if one.baseline else "time"


_SOLUTION = _Column(heading="solution", cell=lambda one: one.solution)
_RESULT = _Column(heading="result", cell=lambda one: one.outcome.value)
_COLUMNS = (
    _RESULT,
    _SOLUTION,
    _Column(heading="problem", cell=lambda one: one.problem, rank=4),
    _Column(heading="status", cell=_status, rank=3),
    _Column(heading="old ms", cell=lambda one: _milliseconds(one.old_ms), rank=2, number=True),
    _Column(heading="new ms", cell=lambda one: _milliseconds(one.new_ms), rank=1, number=True),
    _Column(
        heading="speed [95 %]", cell=lambda one: speedup_text(one.speed, interval=True), number=True
    ),
    _Column(heading="by", cell=_by, rank=5),
)


def show(comparison: Comparison, console: Console, *, quiet: bool) -> None:
    """Print a comparison: the table, remarks, what bears on all of it, and a closing line.

    Args:
        comparison: what was found.
        console: a terminal, to whose width the table is fitted, or a pipe, which gets all of it.
        quiet: leave out what is no reason to fail.
    """
    rows = [one for one in comparison.solutions if not quiet or _fails(one)]
    if rows:
        _print_rows(rows, console)
        console.print()
    for line in (*_remark_lines(rows), *_closing_lines(comparison)):
        shown = printable(line.text, ascii_only=console.options.ascii_only)
        print_line(msgspec.structs.replace(line, text=shown), console)


def _fails(one: Compared) -> bool:
    return one.outcome in (*_FAILURES, Outcome.NOT_JUDGED)


def _print_rows(rows: Sequence[Compared], console: Console) -> None:
    ascii_only = console.options.ascii_only

    def text(column: _Column, one: Compared) -> str:
        cell = printable(column.cell(one), ascii_only=ascii_only) or "-"
        return f"{_mark(one, ascii_only=ascii_only)} {cell}" if column is _RESULT else cell

    widths = {
        column.heading: max(len(column.heading), *(cell_len(text(column, one)) for one in rows))
        for column in _COLUMNS
    }
    columns = list(_COLUMNS)
    if console.is_interactive:
        columns = _fitting(columns, widths, console.width)
    for one in (None, *rows):
        line = Text()
        for column in columns:
            width = widths[column.heading]
            cell = column.heading if one is None else text(column, one)
            cell = shorten(cell, width, ascii_only=ascii_only)
            padded = cell.rjust(width) if column.number else set_cell_size(cell, width)
            shade = _STYLES.get(one.outcome, "") if one and column is _RESULT else ""
            line.append(padded, style=shade)
            line.append(_GAP)
        line.rstrip()
        console.print(line, soft_wrap=True, style="bold" if one is None else "")


def _mark(one: Compared, *, ascii_only: bool) -> str:
    return _MARKS.get(one.outcome, (" ", " "))[ascii_only]


def _fitting(columns: list[_Column], widths: dict[str, int], room: int) -> list[_Column]:
    """Return the columns that fit, and make the solutions' narrower where that is needed."""

    def excess() -> int:
        return sum(widths[c.heading] for c in columns) + len(_GAP) * (len(columns) - 1) - room

    name = _SOLUTION.heading
    while excess() > max(0, widths[name] - _LEAST_NAME_CELLS) and any(c.rank for c in columns):
        least = max(column.rank for column in columns)
        columns = [column for column in columns if column.rank != least]
    widths[name] = max(_LEAST_NAME_CELLS, widths[name] - max(0, excess()))
    return columns


def _remark_lines(rows: Sequence[Compared]) -> Iterator[Line]:
    for one in rows:
        if one.remarks or one.old_solution:
            yield _line(f"{one.solution}: {one.outcome.value}", _STYLES.get(one.outcome, ""))
        if one.old_solution:
            yield _indented(f"was {one.old_solution}")
        yield from (_indented(remark) for remark in one.remarks)


def _closing_lines(comparison: Comparison) -> Iterator[Line]:
    for difference in comparison.differences:
        words = in_words(difference)
        if difference.decisive:
            yield _line(f"warning: other machines, whose times say little: {words}", "yellow")
        else:
            yield _line(f"note: {words}", "dim")
    for warning in comparison.warnings:
        yield _line(f"warning: {warning}", "yellow")
    counts = [
        f"{comparison.count(outcome)} {outcome.value}"
        for outcome in Outcome
        if comparison.count(outcome)
    ]
    bound = f"bound {comparison.bound_percent:g} %"
    good = comparison.exit_code is ExitCode.OK
    yield _line(f"{', '.join(counts)} ({bound})", "bold" if good else "bold red")


def _line(text: str, shade: str) -> Line:
    return Line(lead="", folded_lead="  ", text=text, style=shade)


def _indented(text: str) -> Line:
    return Line(lead="    ", folded_lead="    ", text=text, style="dim")
