"""A run as a table on a terminal, or as plain aligned columns where the output is piped."""

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.columns import LAYOUTS, SOLUTION, STATUS, Column, mark, style
from kernelgen.report.details import Line, details
from kernelgen.report.order import Order, ordered
from kernelgen.report.outcome import summary
from kernelgen.report.printable import printable
from kernelgen.report.suite import suite_figures, suite_lines

# A name is shortened to this much before a column is given up for it.
_NAME_CELLS = 26
_LEAST_NAME_CELLS = 4
_UNLIMITED_CELLS = 100_000


def show(run: Run, console: Console, *, order: Order = "problem") -> None:
    """Print a run: the table, what went wrong where, the figures of a suite, and a closing line.

    On a terminal, columns are left out by importance until the rest fits; numbers are never wrapped
    or cut. Elsewhere every column is printed, at least two spaces apart, with `-` where there is
    nothing.
    """
    ascii_only = console.options.ascii_only
    run = ordered(run, order)
    if console.is_interactive:
        console.print(_fitting(run, console))
    else:
        _print_plain(run, console)
    for verdict in run.verdicts:
        lines = list(details(verdict, ascii_only=ascii_only))
        if lines:
            console.print()
        for line in lines:
            print_line(line, console)
    console.print()
    _print_figures(run, console)
    methods = dict.fromkeys(v.timing.method for v in run.verdicts if v.timing and v.timing.method)
    for method in methods:
        text = printable(f"Times: {method}", ascii_only=ascii_only)
        print_line(Line(lead="", folded_lead="  ", text=text, style="dim"), console)
    closing = printable(summary(run), ascii_only=ascii_only)
    print_line(Line(lead="", folded_lead="  ", text=closing, style="bold"), console)


def _print_figures(run: Run, console: Console) -> None:
    """Print what the solutions amount to together, where there is more than one."""
    if len(run.verdicts) < 2:  # noqa: PLR2004
        return
    for line in suite_lines(suite_figures(run)):
        text = printable(line.lstrip(), ascii_only=console.options.ascii_only)
        lead = " " * (len(line) - len(line.lstrip()))
        print_line(Line(lead=lead, folded_lead=lead + "  ", text=text), console)


def shorten(name: str, cells: int, *, ascii_only: bool) -> str:
    """Return a path cut from the left, where it says least, to a number of terminal cells."""
    if cell_len(name) <= cells:
        return name
    dots = "..." if ascii_only else "…"
    kept = cells - len(dots)
    start = next(i for i in range(len(name) + 1) if cell_len(name[i:]) <= kept)
    return dots + name[start:]


def _fitting(run: Run, console: Console) -> Table:
    roomy = console.options.update_width(_UNLIMITED_CELLS)
    names = [cell_len(_text(SOLUTION, verdict, console)) for verdict in run.verdicts]
    widest_name = max(names, default=0)
    for layout in LAYOUTS:
        columns = [column for column in layout if _used(column, run)]
        table = _table(run, columns, widest_name, console)
        excess = console.measure(table, options=roomy).maximum - console.width
        if excess <= 0:
            return table
        room = widest_name - excess
        if room >= _NAME_CELLS or layout is LAYOUTS[-1]:
            break
    return _table(run, columns, max(room, _LEAST_NAME_CELLS), console)


def _table(run: Run, columns: Sequence[Column], name_cells: int, console: Console) -> Table:
    ascii_only = console.options.ascii_only
    # rich would swap the rule below the head for a frame where the terminal is ASCII only.
    lines = None if ascii_only else box.SIMPLE_HEAD
    table = Table(box=lines, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(column.heading, justify=side, no_wrap=True, overflow="crop")
    for verdict in run.verdicts:
        cells = []
        for column in columns:
            text = _text(column, verdict, console)
            if column is SOLUTION:
                text = shorten(text, name_cells, ascii_only=ascii_only)
            if column is STATUS:
                text = f"{mark(verdict, ascii_only=ascii_only)} {text}"
            cells.append(Text(text, style=style(verdict) if column is STATUS else ""))
        table.add_row(*cells)
    return table


def _used(column: Column, run: Run) -> bool:
    return column is SOLUTION or any(column.cell(verdict) for verdict in run.verdicts)


def _text(column: Column, verdict: Verdict, console: Console) -> str:
    return printable(column.cell(verdict), ascii_only=console.options.ascii_only)


def _print_plain(run: Run, console: Console) -> None:
    columns = LAYOUTS[0]
    cells = [[_text(c, verdict, console) or "-" for c in columns] for verdict in run.verdicts]
    rows = [[column.heading for column in columns], *cells]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            cell.rjust(width) if column.number else set_cell_size(cell, width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        console.out("  ".join(padded).rstrip(), highlight=False)


def print_line(line: Line, console: Console) -> None:
    """Print a line as it is, or on a terminal folded to its width."""
    if not console.is_interactive:
        console.out(f"{line.lead}{line.text}", highlight=False)
        return
    room = max(console.width - max(cell_len(line.lead), cell_len(line.folded_lead)), 1)
    lead = line.lead
    for row in Text(line.text, style=line.style).wrap(console, room, overflow="fold"):
        console.print(Text(lead, style=line.style).append_text(row), soft_wrap=True)
        lead = line.folded_lead
