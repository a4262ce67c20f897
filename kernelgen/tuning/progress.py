"""What is going on during a search, on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from kernelgen.grading.verdict import Status
from kernelgen.report.columns import decimal
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.progress import Verbosity, live_display
from kernelgen.tuning.record import Result
from kernelgen.tuning.trials import Watcher


@contextmanager
def progress(console: Console, verbosity: Verbosity, budget_s: float) -> Iterator[Watcher]:
    """Give a watcher that tells a console what is going on, until the block is left.

    A terminal gets a live line for the schedule that is being graded; each result leaves a line. A
    pipe gets the results' lines alone, and with VERBOSE every phase.
    """
    live = console.is_interactive and not console.options.ascii_only
    if verbosity is Verbosity.QUIET:
        yield Silent()
    elif live and verbosity is Verbosity.NORMAL:
        with live_display(console) as display:
            yield Lines(console, budget_s, display=display)
    else:
        yield Lines(console, budget_s, phases=verbosity is Verbosity.VERBOSE)


class Silent:
    """Tells nothing."""

    def trying(self, what: str) -> None:
        """Ignore it."""

    def phase(self, text: str) -> None:
        """Ignore it."""

    def tried(self, result: Result) -> None:
        """Ignore it."""


class Lines:
    """Prints lines such as `[4] threads=256: PASSED: 1.22 ms (9.6 s); 212 s of the budget left`.

    Args:
        console: to print on.
        budget_s: of the search, which begins now.
        display: a live line of it tells what is being graded.
        phases: also print a line for each phase.
    """

    def __init__(
        self,
        console: Console,
        budget_s: float,
        *,
        display: Progress | None = None,
        phases: bool = False,
    ) -> None:
        self._console, self._display, self._phases = console, display, phases
        self._ends = time.monotonic() + budget_s
        self._task: TaskID | None = None
        self._count, self._what, self._since = 0, "", 0.0
        self._first_ms: float | None = None

    def trying(self, what: str) -> None:
        """Remember what is graded, and show it."""
        self._count += 1
        self._what, self._since = what, time.monotonic()
        if self._display is not None:
            self._task = self._display.add_task(self._name, total=None, phase="")

    def phase(self, text: str) -> None:
        """Show the phase."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, phase=f"{printable(text)}{self._left}")
        elif self._phases:
            self._print(Text(f"{self._name}: {text}"))

    def tried(self, result: Result) -> None:
        """Print the result, and how much of the budget is left."""
        if self._display is not None and self._task is not None:
            self._display.remove_task(self._task)
            self._task = None
        line = Text(f"{self._name}: ")
        good = result.status is Status.PASSED
        line.append(result.status.value, style="cyan" if good else "bold red")
        line.append(self._gist(result))
        line.append(f" ({time.monotonic() - self._since:.1f} s){self._left}", style="dim")
        self._print(line)

    @property
    def _name(self) -> str:
        return f"[{self._count}] {self._what}"

    @property
    def _left(self) -> str:
        left_s = self._ends - time.monotonic()
        return f"; {left_s:.0f} s of the budget left" if left_s > 0 else ""

    def _gist(self, result: Result) -> str:
        if result.time_ms is None:
            reason = printable_lines(result.reason)
            return f": {reason[0]}" if reason else ""
        if self._first_ms is None:
            self._first_ms = result.time_ms
            return f": {decimal(result.time_ms)} ms"
        ratio = self._first_ms / result.time_ms
        return f": {decimal(result.time_ms)} ms, {ratio:.2f}x the present schedule's speed"

    def _print(self, line: Text) -> None:
        line.plain = printable(line.plain, ascii_only=self._console.options.ascii_only)
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()
