"""The consoles that all commands write to, and the tables and lines of text that they print there.

A column is never cut in the middle of a number: where the table is too wide, the least important
columns are left out, and names are cut from the left.
"""

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from kernelgen.destination import STDOUT
from kernelgen.report.json_report import write
from kernelgen.report.printable import printable
from kernelgen.solution.file import GENERATED_NAME

Item = TypeVar("Item")

WIDTH = 100
"""Cells of a line where the output is no terminal and COLUMNS does not say otherwise."""
_UNLIMITED_CELLS = 10_000


class _ReportConsole(Console):
    """A console that leaves a broken pipe to the command line, which knows its exit code."""

    def on_broken_pipe(self) -> None:
        # rich calls this while it handles the BrokenPipeError, and would exit with 1 here: the code
        # that says that a solution failed.
        raise  # noqa: PLE0704


def console_for(*, stderr: bool) -> Console:
    """Return a console that takes text as it is: without markup, emoji names or highlighting.

    It is interactive only on a real terminal: FORCE_COLOR, which CI services set, may colour a log
    and must not animate it.
    """
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return _ReportConsole(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        force_interactive=None if terminal else False,
        width=None if terminal or "COLUMNS" in os.environ else WIDTH,
    )


def busy(what: str) -> AbstractContextManager[object]:
    """Return a context in which a terminal shows what takes its time."""
    console = console_for(stderr=True)
    return console.status(what) if console.is_interactive else nullcontext()


def tracked(items: Iterable[Item], what: str) -> Iterable[Item]:
    """Go through items of some kind, and tell a terminal how far it is."""
    console = console_for(stderr=True)
    return track(items, what, console=console, transient=True, disable=not console.is_interactive)


def keep_lines_whole(console: Console) -> None:
    """Fold and cut nothing where no person reads: what reads a pipe wants whole names and lines."""
    if not console.is_interactive:
        console.width = _UNLIMITED_CELLS


def show_and_write(
    record: msgspec.Struct, show: Callable[[Console], None], json: Path | None
) -> None:
    """Show a record on stdout, and write its JSON; stdout belongs to the JSON if that goes there.

    Neither is lost if the other cannot be written: the disk is full, the reader of a pipe left.
    """
    try:
        show(console_for(stderr=json == STDOUT))
    finally:
        if json is not None:
            write(record, json)


Row = TypeVar("Row")

# A name keeps this much before a column is left out for it, and this much in the end.
_NAME_CELLS = 24
_LEAST_NAME_CELLS = 8
_GAP_CELLS = 2
_ASCII_SIGNS = str.maketrans({"✓": "+", "✗": "x"})


class Column(msgspec.Struct, Generic[Row], frozen=True):
    """One column.

    Attributes:
        heading: printable, with the unit of what stands below; may be of several lines.
        cell: a row's entry, or "" where there is none.
        number: aligned to the right.
        name: may be cut from the left, where a path says least.
        style: a rich style for a row's entry.
        rank: the columns of the highest rank are left out first; those of rank 0 stay.
        narrower: what takes its place when it is left out.
    """

    heading: str
    cell: Callable[[Row], str]
    number: bool = False
    name: bool = False
    style: Callable[[Row], str] | None = None
    rank: int = 0
    narrower: "Column[Row] | None" = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of text.

    Attributes:
        lead: what it starts with.
        folded_lead: what its further rows start with where it is folded, so that no text of a
            candidate reaches the first column, where the report's own lines start.
        text: any text; it is made printable.
        style: a rich style.
    """

    lead: str = ""
    folded_lead: str = "  "
    text: str
    style: str = ""


def indented(text: str, style: str = "dim") -> Line:
    """Return a line that belongs to the heading above it."""
    return Line(lead="    ", folded_lead="    ", text=text, style=style)


def written(text: str, console: Console) -> str:
    """Return a line made printable, in what the console's encoding can carry."""
    if console.options.ascii_only:
        return printable(text.translate(_ASCII_SIGNS), ascii_only=True)
    return printable(text)


def print_line(line: Line, console: Console) -> None:
    """Print a line, folded to the console's width.

    Elsewhere than on a terminal, a word that is too long stays whole, so that it can be found.
    """
    room = max(console.width - max(cell_len(line.lead), cell_len(line.folded_lead)), 1)
    text = written(line.text, console)
    if console.is_interactive:
        rows = [row.plain for row in Text(text).wrap(console, room, overflow="fold")]
    else:
        rows = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    leads = chain([written(line.lead, console)], repeat(line.folded_lead))
    for row, lead in zip(rows, leads, strict=False):
        console.print(Text(f"{lead}{row}".rstrip(), style=line.style), soft_wrap=True)


def print_table(columns: Sequence[Column[Row]], rows: Sequence[Row], console: Console) -> None:
    """Print rows, with `-` where a row has nothing; columns that are empty are left out."""

    def text(column: Column[Row], row: Row) -> str:
        return written(column.cell(row), console) or "-"

    def cells(column: Column[Row]) -> int:
        entries = (*column.heading.split("\n"), *(text(column, row) for row in rows))
        return max(map(cell_len, entries))

    chosen = [c for c in columns if not c.rank or any(c.cell(row) for row in rows)]
    while True:
        needed = sum(map(cells, chosen)) + _GAP_CELLS * (len(chosen) - 1)
        name_cells = max((cells(column) for column in chosen if column.name), default=0)
        room = name_cells - max(0, needed - console.width)
        least = max(chosen, key=lambda column: column.rank)
        if room >= min(name_cells, _NAME_CELLS) or not least.rank:
            break
        place = chosen.index(least)
        chosen[place : place + 1] = [] if least.narrower is None else [least.narrower]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in chosen:
        side: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(Text(column.heading), justify=side, no_wrap=True, overflow="crop")
    for row in rows:
        entries = []
        for column in chosen:
            shown = text(column, row)
            if column.name:
                cells_left = max(room, _LEAST_NAME_CELLS)
                shown = _short_name(shown, cells_left, ascii_only=console.options.ascii_only)
            entries.append(Text(shown, style=column.style(row) if column.style else ""))
        table.add_row(*entries)
    console.print(table)


def _short_name(name: str, cells: int, *, ascii_only: bool) -> str:
    """Return a name cut from the left; `1/19 ReLU #0` keeps its numbers."""
    problem, mark, sample = name.rpartition(" #")
    if not (mark and sample.isdecimal()):
        return shorten(name, cells, ascii_only=ascii_only)
    kept = shorten(problem, cells - len(mark + sample), ascii_only=ascii_only, keep="start")
    return f"{kept}{mark}{sample}"


def shorten(
    text: str, cells: int, *, ascii_only: bool, keep: Literal["start", "end"] = "end"
) -> str:
    """Return a text cut to a number of cells: a path from the left, where it says least."""
    if cell_len(text) <= cells:
        return text
    dots = "..." if ascii_only else "…"
    kept = max(0, cells - len(dots))
    if keep == "start":
        end = next(i for i in range(len(text), -1, -1) if cell_len(text[:i]) <= kept)
        return text[:end] + dots
    start = next(i for i in range(len(text) + 1) if cell_len(text[i:]) <= kept)
    return dots + text[start:]


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the names of Python files without folder and suffix, or the paths if names clash.

    A generated file by KernelBench's naming is `1/19 #0`: level, problem and sample.
    """
    short = {path: Path(path).stem if path.endswith(".py") else path for path in paths}
    for path in short:
        if found := GENERATED_NAME.fullmatch(Path(path).name):
            short[path] = "{}/{} #{}".format(*found.groups())
    unique = len(set(short.values())) == len(short)
    return short if unique else {path: path for path in short}


def problem_of(problem: str, solution: str) -> str:
    """Return a problem's name, by KernelBench's naming as `1/19 ReLU`; the file's without one."""
    if found := GENERATED_NAME.fullmatch(Path(solution).name):
        return f"{found[1]}/{found[2]} {problem.partition('_')[2]}".rstrip()
    return problem or solution


def kernelbench_name(problem: str, solution: str) -> str:
    """Return `1/19 ReLU #0` for a file of KernelBench's naming, "" for another."""
    found = GENERATED_NAME.fullmatch(Path(solution).name)
    return "" if found is None else f"{problem_of(problem, solution)} #{found[3]}"


def number_order(text: str) -> list[str]:
    """Return a key that sorts 9_Tall before 10_Batched: numbers by their value."""
    return [part.zfill(9) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
