"""What is going on while a run is graded, on stderr."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from kernelgen.grading.options import Observer
from kernelgen.grading.verdict import Verdict
from kernelgen.report.columns import decimal, mark, speedup_text, style
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.remaining import Remaining


class Verbosity(Enum):
    """How much is told."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"

    @classmethod
    def of(cls, *, quiet: bool, verbose: bool) -> "Verbosity":
        """Return what the two switches of a command line ask for; quiet wins."""
        if quiet:
            return cls.QUIET
        return cls.VERBOSE if verbose else cls.NORMAL


@contextmanager
def progress(console: Console, verbosity: Verbosity) -> Iterator[Observer]:
    """Give an observer that tells a console what is going on, until the block is left.

    A terminal gets a live line for each file that is being graded. Its clock is drawn by a thread
    of this process, so nothing may call os.fork meanwhile; subprocess is safe. A pipe gets plain
    lines: one for each kind of phase, or with VERBOSE for every phase.
    """
    live = console.is_interactive and not console.options.ascii_only
    if verbosity is Verbosity.QUIET:
        yield Silent()
    elif live and verbosity is Verbosity.NORMAL:
        with live_display(console) as display:
            yield LiveLines(display)
    else:
        yield PlainLines(console, every_phase=verbosity is Verbosity.VERBOSE)


def live_display(console: Console) -> Progress:
    """Return lines that a terminal keeps up to date: what, its phase, and for how long."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[phase]}", markup=False, style="dim"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


class Silent:
    """Tells nothing."""

    def begin(self, solutions: Sequence[str]) -> None:
        """Ignore it."""

    def phase(self, index: int, text: str) -> None:
        """Ignore it."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """Ignore it."""


class PlainLines:
    """Prints a line for what happens, such as `[1/3] groupnorm: building`."""

    def __init__(self, console: Console, *, every_phase: bool) -> None:
        self._console = console
        self._every_phase = every_phase
        self._names = _Names(())
        self._last_kind: dict[int, str] = {}

    def begin(self, solutions: Sequence[str]) -> None:
        """Remember the names."""
        self._names = _Names(solutions, ascii_only=self._console.options.ascii_only)

    def phase(self, index: int, text: str) -> None:
        """Print the phase, if it is of another kind than the last one of this file."""
        self._names.started(index)
        # `case 3 of 11: volume` and `case 4 of 11: one_group` are one kind.
        kind = text.partition(" ")[0]
        if self._every_phase or self._last_kind.get(index) != kind:
            shown = printable(text, ascii_only=self._console.options.ascii_only)
            self._print(Text(f"{self._names[index]}: {shown}"))
        self._last_kind[index] = kind

    def finished(self, index: int, verdict: Verdict) -> None:
        """Print the verdict, and how long the others will take."""
        line = self._names.verdict_line(index, verdict)
        if self._names.remaining.left:
            line.append(f"; {self._names.remaining.left}", style="dim")
        self._print(line)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()


class LiveLines:
    """Keeps one live line for each file that is being graded, and leaves one for each verdict."""

    def __init__(self, display: Progress) -> None:
        self.display = display
        self._names = _Names(())
        self._tasks: dict[int, TaskID] = {}
        self._whole: TaskID | None = None

    def begin(self, solutions: Sequence[str]) -> None:
        """Remember the names; of several files, show how far all of them are."""
        self._names = _Names(solutions)
        if len(solutions) > 1:
            how_far = self._names.remaining.how_far
            self._whole = self.display.add_task("all", total=None, phase=how_far)

    def phase(self, index: int, text: str) -> None:
        """Show the phase on the file's line, which is made with the first one."""
        self._names.started(index)
        if index not in self._tasks:
            task = self.display.add_task(self._names[index], total=None, phase=printable(text))
            self._tasks[index] = task
        self.display.update(self._tasks[index], phase=printable(text))

    def finished(self, index: int, verdict: Verdict) -> None:
        """Replace the file's live line by its verdict."""
        if index in self._tasks:
            self.display.remove_task(self._tasks.pop(index))
            self.display.refresh()
        line = self._names.verdict_line(index, verdict)
        if self._whole is not None:
            self.display.update(self._whole, phase=self._names.remaining.how_far)
        self.display.console.print(line, no_wrap=True, overflow="ellipsis")


class _Names:
    """The names of the files, since when each is being graded, and how long the rest will take."""

    def __init__(self, solutions: Sequence[str], *, ascii_only: bool = False) -> None:
        stems = [Path(solution).stem for solution in solutions]
        # Two files of one name in two folders are told apart by their paths.
        names = stems if len(set(stems)) == len(stems) else solutions
        self._names = [printable(name, ascii_only=ascii_only) for name in names]
        self._ascii_only = ascii_only
        self.remaining = Remaining(len(solutions))
        self._since: dict[int, float] = {}

    def __getitem__(self, index: int) -> str:
        return f"[{index + 1}/{len(self._names)}] {self._names[index]}"

    def started(self, index: int) -> None:
        self._since.setdefault(index, time.monotonic())

    def verdict_line(self, index: int, verdict: Verdict) -> Text:
        self.remaining.one_done()
        sign = mark(verdict, ascii_only=self._ascii_only)
        line = Text(f"{self[index]}: ")
        line.append(f"{sign} {verdict.status.value}", style=style(verdict))
        line.append(self._gist(verdict))
        if index in self._since:
            line.append(f" ({time.monotonic() - self._since[index]:.1f} s)", style="dim")
        return line

    def _gist(self, verdict: Verdict) -> str:
        if not verdict.passed:
            reason = printable_lines(verdict.reason, ascii_only=self._ascii_only)
            return f": {reason[0]}" if reason else ""
        if verdict.timing is None:
            return ""
        speedups = "".join(
            f", {speedup_text(speedup, interval=False)} {printable(baseline)}"
            for baseline, speedup in verdict.timing.speedup.items()
        )
        return f": {decimal(verdict.timing.candidate_ms)} ms{speedups}"
