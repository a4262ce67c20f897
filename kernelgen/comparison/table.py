"""A comparison of two runs on a console: remarks, the table, what bears on all, the counts."""

import operator
from pathlib import Path

import msgspec
from rich.console import Console

from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.errors import ExitCode
from kernelgen.report.columns import Tone, decimal, speedup_text
from kernelgen.report.console import (
    Column,
    Line,
    indented,
    number_order,
    print_line,
    print_table,
    problem_of,
)
from kernelgen.report.plan import cut
from kernelgen.report.printable import printable

_FAILURES = (Outcome.BROKE, Outcome.REGRESSED, Outcome.NOT_JUDGED)
_PROBLEM_CELLS = 32
_WON = ((Outcome.BROKE, Outcome.REGRESSED, Outcome.SLOWER), (Outcome.MENDED, Outcome.FASTER))
"""Outcomes by which the first of two models is better, and the second."""
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
    counts = [f"{n} {one.value}" for one in Outcome if (n := comparison.count(one))]
    text = f"{', '.join(counts)} (bound {comparison.bound_percent:g} %)"
    good = comparison.exit_code is ExitCode.OK
    _close(comparison, text, "bold" if good else "bold red", console)


def show_models(comparison: Comparison, console: Console) -> None:
    """Print two models' results of each problem, who wins, and their figures side by side."""
    names = [Path(name).stem for name in (comparison.old, comparison.new)]
    if names[0] == names[1]:
        names = [comparison.old, comparison.new]

    def ms_of(one: Compared, which: int) -> str:
        status, time_ms = ((one.old_status, one.old_ms), (one.new_status, one.new_ms))[which]
        return decimal(time_ms) or ("" if status is None else status.value)

    def winner(one: Compared) -> str:
        return next((name for name, won in zip(names, _WON, strict=True) if one.outcome in won), "")

    rows = sorted(comparison.solutions, key=lambda one: number_order(_problem(one)))
    print_table(
        [
            Column("problem", lambda one: cut(_problem(one), _PROBLEM_CELLS)),
            Column(f"{names[0]}\nms", lambda one: ms_of(one, 0), number=True),
            Column(f"{names[1]}\nms", lambda one: ms_of(one, 1), number=True),
            msgspec.structs.replace(_COLUMNS[-1], heading=f"{names[1]} as fast\n[95 %]", rank=1),
            Column("better", winner),
        ],
        rows,
        console,
    )
    console.print()
    figures = [(name, *both) for name, both in comparison.figures.items()]
    columns = [
        Column[tuple[str, str, str]](heading, operator.itemgetter(index))
        for index, heading in enumerate(("figure", *names))
    ]
    print_table(columns, figures, console)
    console.print()
    won = [sum(map(comparison.count, outcomes)) for outcomes in _WON]
    told = [f"{name} wins {count}" for name, count in zip(names, won, strict=True)]
    alone = {Outcome.GONE: names[0], Outcome.NEW: names[1]}
    for outcome in (Outcome.SAME, Outcome.FAILS, *alone, Outcome.NOT_JUDGED, Outcome.NOT_COMPARED):
        if count := comparison.count(outcome):
            word = f"in {alone[outcome]} alone" if outcome in alone else outcome.value
            told.append(f"{count} {word}")
    _close(comparison, ", ".join(told), "bold", console)


def _problem(one: Compared) -> str:
    return problem_of(one.problem, one.solution)


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
        "result",
        lambda one: f"{_tone(one).sign} {one.outcome.value}",
        style=lambda one: _tone(one).style,
    ),
    Column("solution", lambda one: one.solution, name=True),
    Column("problem", lambda one: one.problem, rank=5),
    Column("status", _status, rank=3),
    Column("old ms", lambda one: decimal(one.old_ms), rank=2, number=True),
    Column("new ms", lambda one: decimal(one.new_ms), rank=1, number=True),
    Column("speed [95 %]", lambda one: speedup_text(one.speed, interval=True), number=True),
)


def _speedups(baseline: str) -> Column[Compared]:
    """Return the column of the speedups over a baseline, side by side."""

    def cell(one: Compared) -> str:
        if baseline not in one.speedups:
            return ""
        old, new = one.speedups[baseline]
        return f"{new:.2f}x, was {old:.2f}x"

    return Column(f"vs {printable(baseline)}", cell, number=True, rank=4)


def _close(comparison: Comparison, text: str, style: str, console: Console) -> None:
    """Print what bears on all, then how it ends."""
    for words in comparison.differences:
        told = f"warning: other machines, whose times say little: {words}"
        print_line(Line(text=told, style="yellow"), console)
    print_line(Line(text=text, style=style), console)
