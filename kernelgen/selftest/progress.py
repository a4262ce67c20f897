"""What is going on while a selftest runs, on stderr."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from kernelgen.report.printable import printable
from kernelgen.report.progress import Verbosity, live_display
from kernelgen.report.remaining import Remaining
from kernelgen.selftest.record import Outcome, Result
from kernelgen.selftest.running import Watcher
from kernelgen.selftest.signs import mark, style

_RESULTS_A_FORECAST = 10


@contextmanager
def progress(console: Console, verbosity: Verbosity) -> Iterator[Watcher]:
    """Give a watcher that tells a console what is going on, until the block is left.

    A terminal gets a live line for each candidate that is being graded, and one for how far it is;
    what is not as expected leaves a line behind. A pipe gets a line for each result, and with
    VERBOSE for each phase as well.
    """
    live = console.is_interactive and not console.options.ascii_only
    if verbosity is Verbosity.QUIET:
        yield Silent()
    elif live and verbosity is Verbosity.NORMAL:
        with live_display(console) as display:
            yield LiveLines(display)
    else:
        yield PlainLines(console, phases=verbosity is Verbosity.VERBOSE)


class Silent:
    """Tells nothing."""

    def begin(self, names: Sequence[str]) -> None:
        """Ignore it."""

    def phase(self, index: int, text: str) -> None:
        """Ignore it."""

    def finished(self, index: int, result: Result) -> None:
        """Ignore it."""


class PlainLines:
    """Prints lines such as `[12/150] hostile_tf32.py: as expected: WRONG_VALUES (3.1 s)`."""

    def __init__(self, console: Console, *, phases: bool) -> None:
        self._console, self._phases = console, phases
        self._names: Sequence[str] = ()
        self._done = 0
        self._remaining = Remaining(0)

    def begin(self, names: Sequence[str]) -> None:
        """Remember the names."""
        self._names, self._remaining = names, Remaining(len(names))

    def phase(self, index: int, text: str) -> None:
        """Print the phase, if phases are wanted."""
        if self._phases:
            self._print(Text(f"{self._names[index]}: {text}"))

    def finished(self, index: int, result: Result) -> None:
        """Print the result."""
        self._done += 1
        self._remaining.one_done()
        line = Text(f"[{self._done}/{len(self._names)}] {self._names[index]}: ")
        ascii_only = self._console.options.ascii_only
        line.append_text(_gist(result, ascii_only=ascii_only))
        if self._done % _RESULTS_A_FORECAST == 0 and self._remaining.left:
            line.append(f"; {self._remaining.left}", style="dim")
        self._print(line)

    def _print(self, text: Text) -> None:
        text.plain = printable(text.plain, ascii_only=self._console.options.ascii_only)
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()


class LiveLines:
    """Keeps a live line for each candidate that is being graded, and one for all of them."""

    def __init__(self, display: Progress) -> None:
        self.display = display
        self._names: Sequence[str] = ()
        self._tasks: dict[int, TaskID] = {}
        self._remaining = Remaining(0)
        self._whole: TaskID | None = None

    def begin(self, names: Sequence[str]) -> None:
        """Remember the names, and show how many there are."""
        self._names, self._remaining = names, Remaining(len(names))
        how_far = self._remaining.how_far
        self._whole = self.display.add_task("selftest", total=None, phase=how_far)

    def phase(self, index: int, text: str) -> None:
        """Show the phase on the candidate's line, which is made with the first one."""
        shown = printable(text)
        if index not in self._tasks:
            name = printable(self._names[index])
            self._tasks[index] = self.display.add_task(name, total=None, phase=shown)
        self.display.update(self._tasks[index], phase=shown)

    def finished(self, index: int, result: Result) -> None:
        """Take the candidate's line away; leave one behind if the result is not as expected."""
        self._remaining.one_done()
        if index in self._tasks:
            self.display.remove_task(self._tasks.pop(index))
        if self._whole is not None:
            self.display.update(self._whole, phase=self._remaining.how_far)
        self.display.refresh()
        if result.outcome is not Outcome.AS_EXPECTED:
            line = Text(f"{printable(self._names[index])}: ")
            line.append_text(_gist(result, ascii_only=False))
            self.display.console.print(line, no_wrap=True, overflow="ellipsis")


def _gist(result: Result, *, ascii_only: bool) -> Text:
    sign = mark(result.outcome, ascii_only=ascii_only)
    text = Text(f"{sign} {result.outcome.value}", style=style(result.outcome))
    text.append(f": {result.misses[0] if result.misses else result.got}")
    if result.seconds is not None:
        text.append(f" ({result.seconds:.1f} s)", style="dim")
    return text
