"""Progress while a command works through solutions, on stderr."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from kernelgen.grading.verdict import Verdict
from kernelgen.report.columns import decimal, speedup_text, tone
from kernelgen.report.console import short_names, shorten, written
from kernelgen.report.printable import printable_lines

# Details that a result's line keeps where the rest fills the console.
_LEAST_MORE_CELLS = 20
# A phase of less than this is over before it has been read.
_LEAST_S = 2.0
_MINUTE_S = 60.0


class Remaining:
    """Counts what is done of so many things, one after another or several at once."""

    def __init__(self, total: int) -> None:
        self._total, self.done = total, 0
        self._began = time.monotonic()

    @property
    def how_far(self) -> str:
        """Return how far it is, such as `3 of 12, about 40 s left`."""
        left = self.left
        return f"{self.done} of {self._total}" + (f", {left}" if left else "")

    @property
    def left(self) -> str:
        """Return how long it will take yet, such as `about 2 min left`; "" if nobody can tell."""
        if not self.done:
            return ""
        seconds = (time.monotonic() - self._began) / self.done * (self._total - self.done)
        if seconds < _LEAST_S:
            return ""
        if seconds < 2 * _MINUTE_S:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / _MINUTE_S:.0f} min left"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The line of a result.

    Attributes:
        word: how it ended, with its sign, such as `✓ PASSED`.
        style: a rich style of the word.
        more: what follows; cut where the line would be too long.
        expected: nobody needs to see it, where there are hundreds.
    """

    word: str
    style: str = ""
    more: str = ""
    expected: bool = False


Say = Callable[[Any], Said]
"""Tells what to say of a result."""


class Reporter:
    """Tells a console what is going on: an `Observer` of any kind of result.

    Args:
        console: to print on.
        say: tells of a result.
        display: live lines of a terminal, one for each thing that is being worked on.
        every_phase: print a line for each phase.
        brief: of results that are as expected, leave no line on a terminal.
    """

    def __init__(
        self,
        console: Console,
        say: Say,
        *,
        display: Progress | None = None,
        every_phase: bool = False,
        brief: bool = False,
    ) -> None:
        self._console, self._say, self.display = console, say, display
        self._every_phase, self._brief = every_phase, brief
        self._names: list[str] = []
        self._remaining: Remaining | None = None
        self._since: dict[int, float] = {}
        self._tasks: dict[int, TaskID] = {}
        self._whole: TaskID | None = None

    def begin(self, solutions: Sequence[str]) -> None:
        """Take the names of all that is to be done; of several, show how far all of them are."""
        names = short_names(solutions)
        self._names = [written(names[path], self._console) for path in solutions]
        self._remaining = Remaining(len(solutions))
        if self.display is not None and len(solutions) > 1:
            self._whole = self.display.add_task("all", total=None, phase=self._remaining.how_far)

    def add(self, name: str) -> int:
        """Take one more thing's name, where nobody knows how many come, and return its index."""
        self._names.append(written(name, self._console))
        return len(self._names) - 1

    def phase(self, index: int, text: str) -> None:
        """Show what is being done."""
        self._since.setdefault(index, time.monotonic())
        shown = written(text, self._console)
        if self.display is not None:
            if index not in self._tasks:
                task = self.display.add_task(self._name(index), total=None, phase=shown)
                self._tasks[index] = task
            self.display.update(self._tasks[index], phase=shown)
            return
        if self._every_phase:
            self._print(Text(f"{self._name(index)}: {shown}"))

    def finished(self, index: int, result: object) -> None:
        """Print the result and how long the others will take."""
        if self._remaining is not None:
            self._remaining.done += 1
        said = self._say(result)
        if self.display is not None:
            if index in self._tasks:
                self.display.remove_task(self._tasks.pop(index))
            if self._whole is not None and self._remaining is not None:
                self.display.update(self._whole, phase=self._remaining.how_far)
            self.display.refresh()
            if self._brief and said.expected:
                return
        self._print(self._line(index, said))

    def _line(self, index: int, said: Said) -> Text:
        line = Text(f"{self._name(index)}: ")
        line.append(written(said.word, self._console), style=said.style)
        end = Text(style="dim")
        if index in self._since:
            end.append(f" ({time.monotonic() - self._since[index]:.1f} s)")
        if self._left and self._whole is None:
            end.append(f"; {self._left}")
        if said.more:
            more = written(said.more, self._console)
            room = self._console.width - line.cell_len - end.cell_len - cell_len(": ")
            room, ascii_only = max(room, _LEAST_MORE_CELLS), self._console.options.ascii_only
            line.append(": " + shorten(more, room, ascii_only=ascii_only, keep="start"))
        return line.append_text(end)

    @property
    def _left(self) -> str:
        return "" if self._remaining is None else self._remaining.left

    def _name(self, index: int) -> str:
        of = "" if self._remaining is None else f"/{len(self._names)}"
        return f"[{index + 1}{of}] {self._names[index]}"

    def _print(self, text: Text) -> None:
        if self.display is not None:
            self._console.print(text, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(text, soft_wrap=True)
            self._console.file.flush()


def verdict_said(verdict: Verdict) -> Said:
    """Return what the line of a verdict says: its time, or the first line of its reason."""
    more = ""
    if not verdict.passed:
        more = next(iter(printable_lines(verdict.reason)), "")
    elif verdict.timing is not None:
        speedups = [
            f"{speedup_text(speedup, interval=True)} {baseline}"
            for baseline, speedup in verdict.timing.speedup.items()
        ]
        more = ", ".join([f"{decimal(verdict.timing.candidate_ms)} ms", *speedups])
    word = f"{tone(verdict).sign} {verdict.status.value}"
    return Said(word=word, style=tone(verdict).style, more=more, expected=verdict.passed)


@contextmanager
def progress(
    console: Console,
    say: Say = verdict_said,
    *,
    quiet: bool = False,
    verbose: bool = False,
    brief: bool = False,
) -> Iterator[Reporter]:
    """Give a reporter of verdicts, or of other results, until the block is left.

    A terminal gets a live line for each thing that is being worked on. Its clock is drawn by a
    thread of this process, so nothing may call os.fork meanwhile; subprocess is safe. A pipe gets
    plain lines: one for each result, and with `verbose` for every phase.

    `brief` is for hundreds of results; see `Reporter`.
    """
    live = console.is_interactive and not console.options.ascii_only
    if quiet:
        yield Reporter(Console(quiet=True), say)
    elif live and not verbose:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", markup=False, style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as display:
            yield Reporter(console, say, display=display, brief=brief)
    else:
        yield Reporter(console, say, every_phase=verbose, brief=brief)
