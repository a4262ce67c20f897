"""`kernelgen list`: the problems that have a name."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelgen.errors import ExitCode, ProblemError
from kernelgen.problem.library import problem_files
from kernelgen.problem.record import ConstantValue, Problem
from kernelgen.problem.yaml_file import read_yaml_problem

if TYPE_CHECKING:
    from rich.console import Console


_SHORT = 32  # characters of a summary beside the longest name, in 80 columns


@click.command()
def command() -> int:
    """List the problems: those in ./problems, and those that come with kernelgen.

    On a terminal this is a table; piped, it is a heading and one line a problem, with tabs.
    """
    files = problem_files()
    problems = [problem for problem in map(_read, files) if problem is not None]
    if sys.stdout.isatty():
        from kernelgen.report.console import console_for

        show(problems, console_for(stderr=False))
    else:
        click.echo("\t".join(name for name, *_ in _COLUMNS))
        for problem in problems:
            click.echo("\t".join(cell(problem) for *_, cell in _COLUMNS))
    return ExitCode.OK if len(problems) == len(files) else ExitCode.USAGE


def _read(file: Path) -> Problem | None:
    """Return a problem, or None for a broken file, which does not hide the others."""
    try:
        return read_yaml_problem(file)
    except ProblemError as error:
        click.echo(f"error: {error}", err=True)
        return None


def in_short(value: ConstantValue) -> str:
    """Return a constant as one would say it: 512x512 for a shape."""
    if isinstance(value, tuple):
        return "x".join(in_short(part) for part in value) or "()"
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _constants(problem: Problem) -> str:
    return " ".join(f"{name}={in_short(value)}" for name, value in problem.constants.items())


def _solution(problem: Problem) -> str:
    path = Path("solutions") / f"{problem.name}.py"
    return str(path) if path.is_file() else "-"


# Each with its rank: what is left out first where the table is too wide; `show` has it.
_COLUMNS: tuple[tuple[str, int, Callable[[Problem], str]], ...] = (
    ("problem", 0, lambda problem: problem.name),
    ("summary", 2, lambda problem: problem.summary),
    ("constants", 5, _constants),
    ("cases", 3, lambda problem: str(len(problem.all_cases()))),
    ("solution", 4, _solution),
    ("KernelBench", 1, lambda problem: problem.kernelbench or "-"),
)


def show(problems: Sequence[Problem], console: "Console") -> None:
    """Print a table, without the columns that a narrow console has no room for."""
    from kernelgen.report.table import Column, print_table

    short = Column[Problem](heading="summary", rank=1, cell=lambda problem: _cut(problem.summary))
    columns = [
        Column(heading=n, rank=rank, cell=cell, narrower=short if n == "summary" else None)
        for n, rank, cell in _COLUMNS
    ]
    print_table(columns, problems, console)
