"""A selftest for a person: what is going on, what was found, and the classes of attack."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from kernelgen.report.details import Line
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.progress import live_display
from kernelgen.report.remaining import Remaining
from kernelgen.report.table import print_line
from kernelgen.selftest.classes import CLASSES, ExploitClass, Family
from kernelgen.selftest.corpus import Candidate, Kind
from kernelgen.selftest.record import Outcome, Result, SelftestRun

_RESULTS_A_FORECAST = 10
_REASON_LINES = 6
_TELLING = (Outcome.MISS, Outcome.KNOWN_GAP, Outcome.CLOSED_GAP)
_MARKS = {
    Outcome.AS_EXPECTED: ("✓", "+"),
    Outcome.MISS: ("✗", "x"),
    Outcome.KNOWN_GAP: ("!", "!"),
    Outcome.CLOSED_GAP: ("!", "!"),
    Outcome.NOT_RUN: ("?", "?"),
}
_STYLES = {Outcome.AS_EXPECTED: "cyan", Outcome.MISS: "bold red"}


@contextmanager
def progress(console: Console, total: int, *, quiet: bool) -> Iterator["Lines"]:
    """Give a watcher that tells a console what is going on, until the block is left.

    A terminal gets a live line for each candidate that is being graded, and one for how far it is;
    what is not as expected leaves a line behind. A pipe gets a line for each result.
    """
    if quiet:
        yield Lines(Console(quiet=True), None, total)
    elif console.is_interactive and not console.options.ascii_only:
        with live_display(console) as display:
            yield Lines(console, display, total)
    else:
        yield Lines(console, None, total)


class Lines:
    """Lines of progress, such as `[12/150] hostile_tf32.py: ✓ as expected: WRONG_VALUES (3.1 s)`.

    Args:
        console: that they go to.
        display: of live lines; None where there are none.
        total: how many candidates are to be graded, those of all rounds together.
    """

    def __init__(self, console: Console, display: Progress | None, total: int) -> None:
        self._console, self.display, self._total = console, display, total
        self._remaining = Remaining(total)
        self._done = 0
        self._tasks: dict[str, TaskID] = {}
        if display is not None:
            self._tasks[""] = display.add_task(
                "selftest", total=None, phase=self._remaining.how_far
            )

    def phase(self, candidate: Candidate, text: str) -> None:
        """Show the phase on the candidate's live line, which is made with the first one."""
        if self.display is None:
            return
        name, shown = printable(candidate.name), printable(text)
        if name not in self._tasks:
            self._tasks[name] = self.display.add_task(name, total=None, phase=shown)
        self.display.update(self._tasks[name], phase=shown)

    def finished(self, candidate: Candidate, result: Result) -> None:
        """Tell the result; of one as expected, a terminal gets no line."""
        self._done += 1
        self._remaining.one_done()
        ascii_only = self._console.options.ascii_only
        name = printable(candidate.name, ascii_only=ascii_only)
        gist = _gist(result, ascii_only=ascii_only)
        if self.display is None:
            line = Text(f"[{self._done}/{self._total}] {name}: ").append_text(gist)
            if self._done % _RESULTS_A_FORECAST == 0 and self._remaining.left:
                line.append(f"; {self._remaining.left}", style="dim")
            self._console.print(line, soft_wrap=True)
            self._console.file.flush()
            return
        if name in self._tasks:
            self.display.remove_task(self._tasks.pop(name))
        self.display.update(self._tasks[""], phase=self._remaining.how_far)
        self.display.refresh()
        if result.outcome is not Outcome.AS_EXPECTED:
            line = Text(f"{name}: ").append_text(gist)
            self.display.console.print(line, no_wrap=True, overflow="ellipsis")


def _gist(result: Result, *, ascii_only: bool) -> Text:
    text = Text(_MARKS[result.outcome][ascii_only], style=_style(result.outcome))
    text.append(f" {result.outcome.value}")
    said = printable(result.misses[0] if result.misses else result.got, ascii_only=ascii_only)
    text = Text.assemble(text, f": {said}")
    if result.seconds is not None:
        text.append(f" ({result.seconds:.1f} s)", style="dim")
    return text


def _style(outcome: Outcome) -> str:
    return _STYLES.get(outcome, "yellow")


def show(run: SelftestRun, console: Console, *, verbose: bool) -> None:
    """Print a selftest: what is not as expected, the sums, what was not run, and a closing line.

    Args:
        run: what was found.
        console: a terminal, to whose width lines are folded, or a pipe.
        verbose: print a line for every result.
    """
    ascii_only = console.options.ascii_only
    told = [
        result
        for result in sorted(run.results, key=lambda result: (result.round, result.file))
        if verbose or result.outcome in _TELLING
    ]
    for result in told:
        for line in _lines_about(result, ascii_only=ascii_only):
            print_line(line, console)
    if told:
        console.print()
    kinds = {kind.value: [one for one in run.results if one.kind is kind] for kind in Kind}
    families = {
        family.value: [
            one
            for one in run.results
            if any(CLASSES[name].family is family for name in one.exploit)
        ]
        for family in Family
    }
    _print_sums("kind", kinds, console)
    _print_sums("attacks on", families, console)
    for line in _closing(run, ascii_only=ascii_only):
        print_line(line, console)


def _lines_about(result: Result, *, ascii_only: bool) -> Iterator[Line]:
    """Yield what came of a candidate, and where it is not as expected, all that tells why."""

    def indented(text: str, shade: str = "") -> Line:
        shown = printable(text, ascii_only=ascii_only)
        return Line(lead="    ", folded_lead="    ", text=shown, style=shade)

    heading = f"{result.file}: {result.outcome.value}"
    heading += f", {result.got}" if result.got else ""
    heading += f" [{' '.join(result.exploit)}]" if result.exploit else ""
    heading += "" if result.seconds is None else f" ({result.seconds:.1f} s)"
    sign = _MARKS[result.outcome][ascii_only]
    shown = printable(heading, ascii_only=ascii_only)
    yield Line(lead=f"{sign} ", folded_lead="  ", text=shown, style=_style(result.outcome))
    yield from map(indented, result.misses)
    if result.outcome is Outcome.CLOSED_GAP:
        yield indented("it got the verdict that its header names: take its `gap:` line out")
    if result.note and result.outcome in _TELLING:
        yield indented(f"gap: {result.note}")
    if result.misses and result.verdict is not None:
        reason = printable_lines(result.verdict.reason, ascii_only=ascii_only)
        yield from (indented(f"| {line}", "dim") for line in reason[:_REASON_LINES])


def _print_sums(heading: str, groups: dict[str, list[Result]], console: Console) -> None:
    """Print how often each outcome came in each group that has results."""
    rows = [(heading, "runs", *(outcome.value for outcome in Outcome))]
    for name, results in groups.items():
        counts = Counter(result.outcome for result in results)
        sums = (str(counts[outcome] or "-") for outcome in Outcome)
        if results:
            rows.append((name, str(len(results)), *sums))
    if len(rows) == 1:
        return
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [set_cell_size(name, widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        console.print(Text("  ".join(cells)), soft_wrap=True)
    console.print()


def _closing(run: SelftestRun, *, ascii_only: bool) -> Iterator[Line]:
    """Yield what was not run, and a line that says it all."""

    def line(text: str, shade: str) -> Line:
        shown = printable(text, ascii_only=ascii_only)
        return Line(lead="", folded_lead="  ", text=shown, style=shade)

    idle = Counter(one.note for one in run.results if one.outcome is Outcome.NOT_RUN)
    for note, count in idle.items():
        yield line(f"not run, and so neither caught nor accepted: {count} ({note})", "yellow")
    graded = [result for result in run.results if result.outcome is not Outcome.NOT_RUN]
    good = run.count(Outcome.AS_EXPECTED) + run.count(Outcome.CLOSED_GAP)
    words = {Outcome.MISS: "missed", Outcome.KNOWN_GAP: "known gaps", Outcome.NOT_RUN: "not run"}
    others = [f"{run.count(one)} {word}" for one, word in words.items() if run.count(one)]
    devices = dict.fromkeys(r.verdict.device for r in graded if r.verdict and r.verdict.device)
    text = f"{good} of {len(graded)} as expected"
    text += f" ({', '.join(others)})" if others else ""
    text += " on " + " and ".join(map(printable, devices)) if devices else ""
    text += f", in {run.seconds:.0f} s, {run.jobs} at once; --seed {run.seed} repeats the order"
    yield line(text, "bold")


def show_classes(corpus: Sequence[Candidate], console: Console) -> None:
    """Print every class of attack, with the candidates that stand for it or why there is none."""
    ascii_only = console.options.ascii_only
    for family in Family:
        print_line(Line(lead="", folded_lead="  ", text=family.value, style="bold"), console)
        for one in CLASSES.values():
            if one.family is family:
                text = printable(f"{one.name}: {_cover(one, corpus)}", ascii_only=ascii_only)
                print_line(Line(lead=f"  {one.id}  ", folded_lead=" " * 7, text=text), console)


def _cover(one: ExploitClass, corpus: Sequence[Candidate]) -> str:
    files = [candidate.name for candidate in corpus if one.id in candidate.exploit]
    if files:
        return ", ".join(files)
    return f"not applicable. {one.outside}" if one.outside else "no candidate"
