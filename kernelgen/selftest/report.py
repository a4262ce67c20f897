"""A selftest for a person: what is going on, what was found, and the classes of attack."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum

from rich.console import Console

from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.columns import Tone
from kernelgen.report.console import Column, Line, indented, print_line, print_table
from kernelgen.report.outcome import place
from kernelgen.report.printable import printable_lines
from kernelgen.report.progress import Reporter, Said
from kernelgen.report.progress import progress as progress_of
from kernelgen.selftest.corpus import Candidate, Kind, attack_classes

_REASON_LINES = 6


class Outcome(Enum):
    """A candidate's verdict beside its header: in words, and how they are marked.

    Attributes:
        AS_EXPECTED: the one that the header names.
        MISS: another one.
        KNOWN_GAP: another one, and the header says that the grader cannot do better yet.
        CLOSED_GAP: the one that the header names although the header says it would not be.
    """

    AS_EXPECTED = ("as expected", Tone.GOOD)
    MISS = ("miss", Tone.BAD)
    KNOWN_GAP = ("known gap", Tone.WARNING)
    CLOSED_GAP = ("closed gap", Tone.WARNING)

    def __init__(self, words: str, tone: Tone) -> None:
        self.words, self.tone = words, tone


def outcome_of(verdict: Verdict) -> Outcome:
    """Return what a verdict is that was compared with its header."""
    if "gap" in verdict.labels:
        return Outcome.KNOWN_GAP if verdict.misses else Outcome.CLOSED_GAP
    return Outcome.MISS if verdict.misses else Outcome.AS_EXPECTED


def exit_code(run: Run) -> ExitCode:
    """Return what `kernelgen selftest` returns to the shell."""
    if not run.verdicts:
        return ExitCode.GRADER_FAULT
    missed = any(outcome_of(verdict) is Outcome.MISS for verdict in run.verdicts)
    return ExitCode.CANDIDATE_FAILED if missed else ExitCode.OK


def progress(console: Console, *, quiet: bool) -> AbstractContextManager[Reporter]:
    """Give what tells a console of each verdict, such as `[2/9] wrong_mean: ✓ as expected (3.1 s)`.

    There are hundreds: on a terminal, only what is not as expected leaves a line behind.
    """
    return progress_of(console, _said, quiet=quiet, brief=True)


def _said(verdict: Verdict) -> Said:
    outcome = outcome_of(verdict)
    return Said(
        word=f"{outcome.tone.sign} {outcome.words}",
        style=outcome.tone.style,
        more=verdict.misses[0] if verdict.misses else verdict.status.value,
        expected=outcome is Outcome.AS_EXPECTED,
    )


def show(run: Run, left_out: Mapping[str, str], console: Console, *, verbose: bool) -> None:
    """Print a selftest: what is not as expected (or `verbose` all), sums, a closing line."""
    told = [v for v in run.verdicts if verbose or outcome_of(v) is not Outcome.AS_EXPECTED]
    told.sort(key=lambda verdict: verdict.solution)
    for verdict in told:
        for line in _lines_about(verdict):
            print_line(line, console)
    if told:
        console.print()
    kinds = [(kind.value, _outcomes(run, kind.value)) for kind in Kind]
    rows = [kind for kind in kinds if kind[1]]
    if rows:
        print_table([_KIND, *map(_sum_of, Outcome)], rows, console)
        console.print()
    for line in _closing(run, left_out):
        print_line(line, console)


def _lines_about(verdict: Verdict) -> Iterator[Line]:
    """Yield what came of a candidate, and where it is not as expected, all that tells why."""
    outcome, exploit = outcome_of(verdict), verdict.labels.get("exploit")
    heading = f"{verdict.solution}: {outcome.words}, {verdict.status.value}"
    heading += f" [{exploit}]" if exploit else ""
    yield Line(lead=f"{outcome.tone.sign} ", text=heading, style=outcome.tone.style)
    yield from (indented(miss, "") for miss in verdict.misses)
    if outcome is Outcome.CLOSED_GAP:
        yield indented("it got the verdict that its header names: take its `gap:` line out", "")
    if "gap" in verdict.labels:
        yield indented(f"gap: {verdict.labels['gap']}", "")
    if verdict.misses:
        reason = printable_lines(verdict.reason)
        yield from (indented(f"| {line}") for line in reason[:_REASON_LINES])


_Kind = tuple[str, Counter[Outcome]]
_KIND: Column[_Kind] = Column("kind", lambda kind: kind[0])


def _outcomes(run: Run, kind: str) -> Counter[Outcome]:
    return Counter(outcome_of(one) for one in run.verdicts if one.labels["kind"] == kind)


def _sum_of(outcome: Outcome) -> Column[_Kind]:
    rank = 0 if outcome in (Outcome.AS_EXPECTED, Outcome.MISS) else 1
    return Column(outcome.words, lambda kind: str(kind[1][outcome] or ""), number=True, rank=rank)


def _closing(run: Run, left_out: Mapping[str, str]) -> Iterator[Line]:
    """Yield what was not run, and a line that says it all."""
    for note, count in Counter(left_out.values()).items():
        text = f"not run, and so neither caught nor accepted: {count} ({note})"
        yield Line(text=text, style="yellow")
    counts = Counter(map(outcome_of, run.verdicts))
    good = counts[Outcome.AS_EXPECTED] + counts[Outcome.CLOSED_GAP]
    words = {"missed": counts[Outcome.MISS], "known gaps": counts[Outcome.KNOWN_GAP]}
    words["not run"] = len(left_out)
    others = [f"{count} {word}" for word, count in words.items() if count]
    text = f"{good} of {len(run.verdicts)} as expected"
    text += f" ({', '.join(others)})" if others else ""
    text += f"{place(run.verdicts)}; --seed {run.environment['seed']} repeats the order"
    yield Line(text=text, style="bold")


def show_classes(corpus: Sequence[Candidate], console: Console) -> None:
    """Print every class of attack, with the candidates that stand for it or why there is none."""
    known = attack_classes()
    for number, name in known.classes.items():
        files = ", ".join(each.name for each in corpus if number in each.exploit)
        outside = known.outside.get(number)
        why_none = f"not applicable. {outside}" if outside else "no candidate"
        line = Line(lead=f"{number}  ", folded_lead=" " * 5, text=f"{name}: {files or why_none}")
        print_line(line, console)
