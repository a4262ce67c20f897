"""A comparison of two runs on a console: remarks, the table, what bears on all, the counts."""

from collections.abc import Iterator

from rich.console import Console

from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.errors import ExitCode
from kernelgen.report.columns import Tone, decimal, speedup_text
from kernelgen.report.printable import printable
from kernelgen.report.table import Column, Line, indented, print_line, print_table

_FAILURES = (Outcome.BROKE, Outcome.REGRESSED, Outcome.NOT_JUDGED)
_TONES = {
    Outcome.BROKE: Tone.BAD,
    Outcome.REGRESSED: Tone.BAD,
    Outcome.NOT_JUDGED: Tone.UNSURE,
    Outcome.NOT_COMPARED: Tone.UNSURE,
    Outcome.SLOWER: Tone.WARNING,
    Outcome.FASTER: Tone.GOOD,
    Outcome.MENDED: Tone.GOOD,
}


def show(comparison: Comparison, console: Console, *, quiet: bool) -> None:
    """Print a comparison; with `quiet` without what is no reason to fail."""
    rows = [one for one in comparison.solutions if not quiet or one.outcome in _FAILURES]
    for one in rows:
        if one.remark:
            heading = f"{one.solution}: {one.outcome.value}"
            print_line(Line(text=heading, style=_tone(one).style), console)
            print_line(indented(one.remark), console)
            console.print()
    if rows:
        baselines = dict.fromkeys(name for one in rows for name in one.speedups)
        print_table([*_COLUMNS, *map(_speedups, baselines)], rows, console)
        console.print()
    for line in _closing_lines(comparison):
        print_line(line, console)


def _tone(one: Compared) -> Tone:
    return _TONES.get(one.outcome, Tone.NONE)


def _status(one: Compared) -> str:
    old, new = one.old_status, one.new_status
    if old is None or new is None or old is new:
        shown = new or old
        return "" if shown is None else shown.value
    return f"{new.value}, was {old.value}"


_COLUMNS: tuple[Column[Compared], ...] = (
    Column(
        heading="result",
        cell=lambda one: f"{_tone(one).sign} {one.outcome.value}",
        style=lambda one: _tone(one).style,
    ),
    Column(heading="solution", cell=lambda one: one.solution, name=True),
    Column(heading="problem", cell=lambda one: one.problem, rank=5),
    Column(heading="status", cell=_status, rank=3),
    Column(heading="old ms", cell=lambda one: decimal(one.old_ms), rank=2, number=True),
    Column(heading="new ms", cell=lambda one: decimal(one.new_ms), rank=1, number=True),
    Column(
        heading="speed [95 %]",
        cell=lambda one: speedup_text(one.speed, interval=True),
        number=True,
    ),
)


def _speedups(baseline: str) -> Column[Compared]:
    """Return the column of the speedups over a baseline, side by side."""

    def cell(one: Compared) -> str:
        if baseline not in one.speedups:
            return ""
        old, new = one.speedups[baseline]
        return f"{new:.2f}x, was {old:.2f}x"

    return Column(heading=f"vs {printable(baseline)}", cell=cell, number=True, rank=4)


def _closing_lines(comparison: Comparison) -> Iterator[Line]:
    for words in comparison.differences:
        text = f"warning: other machines, whose times say little: {words}"
        yield Line(text=text, style="yellow")
    counts = [
        f"{comparison.count(outcome)} {outcome.value}"
        for outcome in Outcome
        if comparison.count(outcome)
    ]
    good = comparison.exit_code is ExitCode.OK
    text = f"{', '.join(counts)} (bound {comparison.bound_percent:g} %)"
    yield Line(text=text, style="bold" if good else "bold red")
