"""`kernelgen list`: the problems that have a name."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kernelgen import __version__
from kernelgen.build.toolchain import cache_folder
from kernelgen.destination import write_whole
from kernelgen.errors import ExitCode, ProblemError, UserError
from kernelgen.problem.library import problem_files
from kernelgen.problem.record import ConstantValue

if TYPE_CHECKING:
    from rich.console import Console


_SHORT = 32  # characters of a summary beside the longest name, in 80 columns


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One problem, in short; `kernelgen list --json` prints a list of these.

    Attributes:
        name: for `render`, `show` and `grade --problem`.
        summary: one line.
        constants: name -> value of the main case.
        cases: how many cases a solution must get right, main included.
        solution: path of its rendered solution under the current directory, or None.
        kernelbench: level and number of the KernelBench problem that it is, or None.
        path: of its file.
    """

    name: str
    summary: str
    constants: dict[str, ConstantValue]
    cases: int
    solution: str | None
    kernelbench: str | None
    path: str


Index = dict[str, tuple[str, dict[str, Any]]]
"""Path of a problem's file -> its state, and the fields of its row in that state."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(*, as_json: bool) -> int:
    """List the problems: those in ./problems, and those that come with kernelgen.

    On a terminal this is a table; piped, it is a heading and one line a problem, with tabs.
    """
    files = problem_files()
    rows = _rows(files)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
    elif sys.stdout.isatty():
        from kernelgen.report.console import console_for

        show(rows, console_for(stderr=False))
    else:
        click.echo("\t".join(name for name, *_ in _COLUMNS))
        for row in rows:
            click.echo("\t".join(cell(row) for *_, cell in _COLUMNS))
    return ExitCode.OK if len(rows) == len(files) else ExitCode.USAGE


def _rows(files: tuple[Path, ...]) -> list[Row]:
    """Return the rows of files that can be read; those of unchanged files from the index."""
    place, known, index = None, Index(), Index()
    with contextlib.suppress(OSError, UserError, msgspec.MsgspecError):
        place = cache_folder() / "problems.json"
        known = msgspec.json.decode(place.read_bytes(), type=Index)
    rows = []
    for file in files:
        path, state = str(file.absolute()), _state(file)
        kept, fields = known.get(path, ("", {}))
        if (row := Row(**fields) if kept == state else _row(file)) is not None:
            index[path] = (state, msgspec.to_builtins(row))
            solution = Path("solutions") / f"{row.name}.py"
            found = str(solution) if solution.is_file() else None
            rows.append(msgspec.structs.replace(row, path=str(file), solution=found))
    if place is not None and any(known.get(path) != entry for path, entry in index.items()):
        with contextlib.suppress(OSError, UserError):  # without one, the next list takes longer
            write_whole(msgspec.json.encode(known | index), place, make_folders=True)
    return rows


def _state(file: Path) -> str:
    """Return a text that changes with a problem's file, and with kernelgen."""
    found = file.stat()
    return f"{__version__} {found.st_mtime_ns} {found.st_size}"


def _row(file: Path) -> Row | None:
    """Return a problem's row, or None for a broken file, which does not hide the others."""
    from kernelgen.problem.yaml_file import read_yaml_problem

    try:
        problem = read_yaml_problem(file)
    except ProblemError as error:
        click.echo(f"error: {error}", err=True)
        return None
    return Row(
        name=problem.name,
        summary=problem.summary,
        constants=problem.constants,
        cases=len(problem.all_cases()),
        solution=None,
        kernelbench=problem.kernelbench or None,
        path=str(file),
    )


def in_short(value: ConstantValue) -> str:
    """Return a constant as one would say it: 512x512 for a shape."""
    if isinstance(value, tuple | list):  # a list where it was read from JSON
        return "x".join(in_short(part) for part in value) or "()"
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _constants(row: Row) -> str:
    return " ".join(f"{name}={in_short(value)}" for name, value in row.constants.items())


# Each with its rank: what is left out first where the table is too wide; `show` and --json have it.
_COLUMNS: tuple[tuple[str, int, Callable[[Row], str]], ...] = (
    ("problem", 0, lambda row: row.name),
    ("summary", 2, lambda row: row.summary),
    ("constants", 5, _constants),
    ("cases", 3, lambda row: str(row.cases)),
    ("solution", 4, lambda row: row.solution or "-"),
    ("KernelBench", 1, lambda row: row.kernelbench or "-"),
)


def show(rows: list[Row], console: "Console") -> None:
    """Print a table, without the columns that a narrow console has no room for."""
    from kernelgen.report.console import Column, print_table

    short = Column[Row](heading="summary", rank=1, cell=lambda row: _cut(row.summary))
    columns = [
        Column(heading=n, rank=rank, cell=cell, narrower=short if n == "summary" else None)
        for n, rank, cell in _COLUMNS
    ]
    print_table(columns, rows, console)
