"""What is going on during a search, on stderr."""

import time

from rich.console import Console
from rich.text import Text

from kernelgen.grading.verdict import Status
from kernelgen.report.columns import decimal
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.progress import Verbosity, live_display
from kernelgen.tuning.record import Result
from kernelgen.tuning.target import Grade


class Told:
    """Grades, and prints lines such as `[4] threads=256: PASSED: 1.22 ms (9.6 s)`.

    A terminal shows the phases on a live line; a pipe gets them with VERBOSE, a line each.

    Args:
        grade: grades a text.
        console: to print on.
        verbosity: QUIET prints nothing.
        budget_s: of the search, which begins now.
    """

    def __init__(
        self, grade: Grade, console: Console, verbosity: Verbosity, budget_s: float
    ) -> None:
        self._grade, self._console, self._verbosity = grade, console, verbosity
        self._ends = time.monotonic() + budget_s
        self._count = 0
        self._first_ms: float | None = None

    def __call__(self, text: str, what: str) -> Result:
        """Grade a text, whose schedule is told in words such as `threads=256`."""
        if self._verbosity is Verbosity.QUIET:
            return self._grade(text, lambda _phase: None)
        self._count += 1
        name = f"[{self._count}] {what}"
        began = time.monotonic()
        result = self._graded(text, name)
        line = Text(f"{name}: ")
        good = result.status is Status.PASSED
        line.append(result.status.value, style="cyan" if good else "bold red")
        line.append(self._gist(result))
        line.append(f" ({time.monotonic() - began:.1f} s){self._left}", style="dim")
        self._print(line)
        return result

    def _graded(self, text: str, name: str) -> Result:
        if self._verbosity is Verbosity.VERBOSE:
            return self._grade(text, lambda phase: self._print(Text(f"{name}: {phase}")))
        if not self._console.is_interactive or self._console.options.ascii_only:
            return self._grade(text, lambda _phase: None)
        with live_display(self._console) as display:
            task = display.add_task(name, total=None, phase="")
            return self._grade(
                text, lambda phase: display.update(task, phase=f"{printable(phase)}{self._left}")
            )

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
