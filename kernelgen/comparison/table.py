"""A comparison of two runs on a console: remarks, the table, what bears on all, the counts."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.errors import ExitCode
from kernelgen.report.columns import Tone, decimal, speedup_text
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
    for line in _remark_lines(rows):
        print_line(line, console)
    if rows:
        print_table(_COLUMNS, rows, console)
        console.print()
    for line in _closing_lines(comparison):
        print_line(line, console)


def _tone(one: Compared) -> Tone:
    return _TONES.get(one.outcome, Tone.NONE)


def _ms(value: float | None) -> str:
    return "" if value is None else decimal(value)


def _status(one: Compared) -> str:
    old, new = one.old_status, one.new_status
    if old is None or new is None or old is new:
        shown = new or old
        return "" if shown is None else shown.value
    return f"{new.value}, was {old.value}"


def _by(one: Compared) -> str:
    if one.speed is None:
        return ""
    return f"time, vs {one.baseline}" if one.baseline else "time"


_COLUMNS: tuple[Column[Compared], ...] = (
    Column(
        heading="result",
        cell=lambda one: f"{_tone(one).sign} {one.outcome.value}",
        style=lambda one: _tone(one).style,
    ),
    Column(heading="solution", cell=lambda one: one.solution, name=True),
    Column(heading="problem", cell=lambda one: one.problem, rank=4),
    Column(heading="status", cell=_status, rank=3),
    Column(heading="old ms", cell=lambda one: _ms(one.old_ms), rank=2, number=True),
    Column(heading="new ms", cell=lambda one: _ms(one.new_ms), rank=1, number=True),
    Column(
        heading="speed [95 %]",
        cell=lambda one: speedup_text(one.speed, interval=True),
        number=True,
    ),
    Column(heading="by", cell=_by, rank=5),
)


def _remark_lines(rows: Sequence[Compared]) -> Iterator[Line]:
    for one in rows:
        if one.remarks or one.old_solution:
            yield Line(text=f"{one.solution}: {one.outcome.value}", style=_tone(one).style)
            if one.old_solution:
                yield indented(f"was {one.old_solution}")
            yield from map(indented, one.remarks)
            yield Line(text="")


def _closing_lines(comparison: Comparison) -> Iterator[Line]:
    for difference in comparison.differences:
        if difference.decisive:
            words = f"warning: other machines, whose times say little: {difference.words}"
            yield Line(text=words, style="yellow")
        else:
            yield Line(text=f"note: {difference.words}", style="dim")
    for warning in comparison.warnings:
        yield Line(text=f"warning: {warning}", style="yellow")
    counts = [
        f"{comparison.count(outcome)} {outcome.value}"
        for outcome in Outcome
        if comparison.count(outcome)
    ]
    good = comparison.exit_code is ExitCode.OK
    text = f"{', '.join(counts)} (bound {comparison.bound_percent:g} %)"
    yield Line(text=text, style="bold" if good else "bold red")
