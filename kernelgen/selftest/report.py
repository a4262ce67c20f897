"""A selftest for a person: what is going on, what was found, and the classes of attack."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from rich.console import Console

from kernelgen.report.columns import Tone
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.progress import Reporter, Said, Verbosity, progress_of
from kernelgen.report.table import Column, Line, indented, print_line, print_table
from kernelgen.selftest.classes import CLASSES, Family
from kernelgen.selftest.corpus import Candidate, Kind
from kernelgen.selftest.record import Outcome, Result, SelftestRun

_REASON_LINES = 6
_TELLING = (Outcome.MISS, Outcome.KNOWN_GAP, Outcome.CLOSED_GAP)
_TONES = {
    Outcome.AS_EXPECTED: Tone.GOOD,
    Outcome.MISS: Tone.BAD,
    Outcome.KNOWN_GAP: Tone.WARNING,
    Outcome.CLOSED_GAP: Tone.WARNING,
    Outcome.NOT_RUN: Tone.UNSURE,
}
# The columns of outcomes that are left out where there are none, or no room for them.
_RANKS = {Outcome.KNOWN_GAP: 1, Outcome.CLOSED_GAP: 2, Outcome.NOT_RUN: 3}

Group = tuple[str, list[Result]]
"""Results that are counted together, and what they have in common."""


def progress(console: Console, verbosity: Verbosity) -> AbstractContextManager[Reporter[Result]]:
    """Give what tells a console of each result, such as `[2/9] wrong_mean: ✓ as expected (3.1 s)`.

    There are hundreds: on a terminal, only what is not as expected leaves a line behind.
    """
    if verbosity is Verbosity.VERBOSE:
        verbosity = Verbosity.NORMAL  # it asks for results, and not for their phases
    return progress_of(console, verbosity, _said, brief=True)


def _said(result: Result) -> Said:
    tone = _TONES[result.outcome]
    return Said(
        word=f"{tone.sign} {result.outcome.value}",
        style=tone.style,
        more=result.misses[0] if result.misses else result.got,
        expected=result.outcome is Outcome.AS_EXPECTED,
    )


def show(run: SelftestRun, console: Console, *, verbose: bool) -> None:
    """Print a selftest: what is not as expected (or `verbose` all), sums, a closing line."""
    told = [one for one in run.results if verbose or one.outcome in _TELLING]
    told.sort(key=lambda result: (result.round, result.file))
    for result in told:
        for line in _lines_about(result):
            print_line(line, console)
    if told:
        console.print()
    kinds = [(kind.value, [one for one in run.results if one.kind is kind]) for kind in Kind]
    aims = {name: one.family for name, one in CLASSES.items()}
    families = [
        (family.value, [one for one in run.results if family in map(aims.get, one.exploit)])
        for family in Family
    ]
    _print_sums("kind", kinds, console)
    _print_sums("attacks on", families, console)
    for line in _closing(run):
        print_line(line, console)


def _lines_about(result: Result) -> Iterator[Line]:
    """Yield what came of a candidate, and where it is not as expected, all that tells why."""
    heading = f"{result.file}: {result.outcome.value}"
    heading += f", {result.got}" if result.got else ""
    heading += f" [{' '.join(result.exploit)}]" if result.exploit else ""
    heading += "" if result.seconds is None else f" ({result.seconds:.1f} s)"
    tone = _TONES[result.outcome]
    yield Line(lead=f"{tone.sign} ", text=heading, style=tone.style)
    yield from (indented(miss, "") for miss in result.misses)
    if result.outcome is Outcome.CLOSED_GAP:
        yield indented("it got the verdict that its header names: take its `gap:` line out", "")
    if result.note and result.outcome in _TELLING:
        yield indented(f"gap: {result.note}", "")
    if result.misses and result.verdict is not None:
        reason = printable_lines(result.verdict.reason)
        yield from (indented(f"| {line}") for line in reason[:_REASON_LINES])


def _print_sums(heading: str, groups: Sequence[Group], console: Console) -> None:
    """Print how often each outcome came in each group that has results."""
    rows = [group for group in groups if group[1]]
    if rows:
        columns = [
            Column[Group](heading=heading, cell=lambda group: group[0]),
            Column[Group](heading="runs", cell=lambda group: str(len(group[1])), number=True),
            *map(_sum_of, Outcome),
        ]
        print_table(columns, rows, console)
        console.print()


def _sum_of(outcome: Outcome) -> Column[Group]:
    def cell(group: Group) -> str:
        return str(sum(result.outcome is outcome for result in group[1]) or "")

    return Column(heading=outcome.value, cell=cell, number=True, rank=_RANKS.get(outcome, 0))


def _closing(run: SelftestRun) -> Iterator[Line]:
    """Yield what was not run, and a line that says it all."""
    idle = Counter(one.note for one in run.results if one.outcome is Outcome.NOT_RUN)
    for note, count in idle.items():
        text = f"not run, and so neither caught nor accepted: {count} ({note})"
        yield Line(text=text, style="yellow")
    graded = [result for result in run.results if result.outcome is not Outcome.NOT_RUN]
    good = run.count(Outcome.AS_EXPECTED) + run.count(Outcome.CLOSED_GAP)
    words = {Outcome.MISS: "missed", Outcome.KNOWN_GAP: "known gaps", Outcome.NOT_RUN: "not run"}
    others = [f"{run.count(one)} {word}" for one, word in words.items() if run.count(one)]
    devices = dict.fromkeys(r.verdict.device for r in graded if r.verdict and r.verdict.device)
    text = f"{good} of {len(graded)} as expected"
    text += f" ({', '.join(others)})" if others else ""
    text += " on " + " and ".join(map(printable, devices)) if devices else ""
    text += f", in {run.seconds:.0f} s, {run.jobs} at once; --seed {run.seed} repeats the order"
    yield Line(text=text, style="bold")


def show_classes(corpus: Sequence[Candidate], console: Console) -> None:
    """Print every class of attack, with the candidates that stand for it or why there is none."""
    for family in Family:
        print_line(Line(text=family.value, style="bold"), console)
        for one in CLASSES.values():
            if one.family is family:
                files = ", ".join(each.name for each in corpus if one.id in each.exploit)
                why_none = f"not applicable. {one.outside}" if one.outside else "no candidate"
                text = f"{one.name}: {files or why_none}"
                print_line(Line(lead=f"  {one.id}  ", folded_lead=" " * 7, text=text), console)
