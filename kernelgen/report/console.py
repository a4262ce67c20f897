"""The consoles that reports and progress are written to."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import track

from kernelgen.destination import STDOUT
from kernelgen.report.json_report import write

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
