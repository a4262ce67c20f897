"""Figures of a run of many solutions: pass rate, fast_p and geometric mean.

All of it is derived from the run's verdicts and is no part of the JSON report. `docs/statistics.md`
explains the figures to users.
"""

from collections.abc import Iterator, Sequence
from math import comb
from statistics import fmean, geometric_mean
from typing import Literal

from kernelgen.grading.timing.times import Says, Speedup
from kernelgen.grading.verdict import Owner, Run, Verdict
from kernelgen.report.printable import printable

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p for which fast_p is given."""

USUAL_BASELINES = ("eager", "compile")
"""Those with columns of their own in tables."""

Unit = Literal["solution", "problem"]

_ATTEMPTS = (1, 5, 10, 100)
"""The k for which pass@k is given, beside the fewest samples of a problem."""
_SAYS: tuple[Says, ...] = ("faster", "same", "slower")
# Names that stand below a table; all of them are in the record.
_NAMED = 5


def suite_facts(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the figures of a run as pairs of a name and what is to be said.

    First each solution is a unit. Each problem with the best of its solutions is one after that,
    where it has several. What is the problem's or the grader's doing is in no figure, for nobody
    knows what it would have been.
    """
    if others := [one.solution for one in run.verdicts if one.owner is not Owner.CANDIDATE]:
        yield "not judged, and in no figure below", f"{len(others)} ({some(others)})"
    for unit, groups in _units(run):
        best = ", the best solution of each" if unit == "problem" else ""
        yield "pass rate", _of_all(_passed(groups), len(groups), f" {unit}s") + best
        yield from _attempts(groups, unit)
        for baseline in baselines_of(run):
            units = [_best(group, baseline) for group in groups]
            name = printable(baseline)
            yield f"vs {name}", _mean_text(baseline, units, unit)
            fast = (f"fast_{p:g} {_fast_text(p, baseline, units)}" for p in FAST_P)
            yield f"fast_p vs {name}", ", ".join(fast)
            untimed = [v.solution for v in units if v.passed and speedup_over(baseline, v) is None]
            if untimed:
                yield f"passed without a time against {name}", some(untimed)


def figures(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the same figures, one a line, to stand beside those of another run."""
    for unit, groups in _units(run):
        best = "" if unit == "solution" else ", best samples"
        yield f"pass rate{best}", _of_all(_passed(groups), len(groups))
        yield from _attempts(groups, unit)
        for baseline in baselines_of(run):
            units = [_best(group, baseline) for group in groups]
            of = f" vs {printable(baseline)}{best}"
            if (mean := mean_speedup(baseline, units)) is not None:
                yield f"geometric mean{of}", f"{mean:.2f}x"
            for p in FAST_P[1:]:
                yield f"fast_{p:g}{of}", _fast_text(p, baseline, units)


def _units(run: Run) -> Iterator[tuple[Unit, list[list[Verdict]]]]:
    """Yield what is judged by solution, and by problem where one has several."""
    judged = [verdict for verdict in run.verdicts if verdict.owner is Owner.CANDIDATE]
    by_problem: dict[str, list[Verdict]] = {}
    for verdict in judged:
        # Where no problem could be found, nobody knows whether two solutions have the same one.
        by_problem.setdefault(verdict.problem or verdict.solution, []).append(verdict)
    if judged:
        yield "solution", [[verdict] for verdict in judged]
    if len(by_problem) < len(judged):
        yield "problem", list(by_problem.values())


def _passed(groups: Sequence[Sequence[Verdict]]) -> int:
    return sum(any(verdict.passed for verdict in group) for group in groups)


def _of_all(count: int, total: int, units: str = "") -> str:
    return f"{count} of {total}{units}, {count / total:.0%}"


def _attempts(groups: Sequence[Sequence[Verdict]], unit: Unit) -> Iterator[tuple[str, str]]:
    """Yield the compile rate of solutions, and pass@k of problems with several."""
    if unit == "solution":
        built = sum(verdict.build is not None for group in groups for verdict in group)
        yield "compile rate", _of_all(built, len(groups))
        return
    fewest = min(map(len, groups))
    for k in sorted({k for k in _ATTEMPTS if k < fewest} | {fewest}):
        rates = [pass_at(k, len(one), sum(v.passed for v in one)) for one in groups]
        yield f"pass@{k}", f"{fmean(rates):.0%} of {len(groups)} problems"


def pass_at(k: int, samples: int, passed: int) -> float:
    """Return the chance that one of k samples passes, drawn from these without repetition."""
    return 1 - comb(samples - passed, k) / comb(samples, k)


def _mean_text(baseline: str, units: Sequence[Verdict], unit: str) -> str:
    mean = mean_speedup(baseline, units)
    if mean is None:
        return "nothing that passed was timed"
    speedups = _speedups(baseline, units)
    says = ", ".join(f"{sum(one.says == word for one in speedups)} {word}" for word in _SAYS)
    return f"{says}; geometric mean {mean:.2f}x over {len(speedups)} of {len(units)} {unit}s"


def _fast_text(p: float, baseline: str, units: Sequence[Verdict]) -> str:
    """Return the share of units, failures among them, that are at least p times as fast.

    It is sure where the lower bound of the interval is at least p. A pass is at least 0 times as
    fast as anything, timed or not.
    """
    speedups = _speedups(baseline, units)
    passed = sum(verdict.passed for verdict in units)
    fast = sum(one.median >= p for one in speedups) if p else passed
    sure = sum(one.ci95[0] >= p for one in speedups) if p else passed
    surely = f" (surely {sure / len(units):.0%})" if sure != fast else ""
    return f"{fast / len(units):.0%}{surely}"


def mean_speedup(baseline: str, verdicts: Sequence[Verdict]) -> float | None:
    """Return the geometric mean of the speedups of what passed and was timed; None of nothing."""
    medians = [one.median for one in _speedups(baseline, verdicts)]
    # A record may come from a file, where a speedup may be anything.
    return geometric_mean(medians) if medians and min(medians) > 0 else None


def _speedups(baseline: str, verdicts: Sequence[Verdict]) -> list[Speedup]:
    passed = [verdict for verdict in verdicts if verdict.passed]
    return [found for v in passed if (found := speedup_over(baseline, v)) is not None]


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    told = ", ".join(printable(name) for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{told} and {more} more" if more > 0 else told


def baselines_of(run: Run) -> tuple[str, ...]:
    """Return the baselines that any verdict was timed against: eager, compile, then by name."""
    timings = [verdict.timing for verdict in run.verdicts if verdict.timing is not None]
    names = {name for timing in timings for name in timing.speedup}
    first = [name for name in USUAL_BASELINES if name in names]
    return (*first, *sorted(names.difference(first)))


def speedup_over(baseline: str, verdict: Verdict) -> Speedup | None:
    """Return a verdict's speedup over a baseline, if it was timed against it."""
    return None if verdict.timing is None else verdict.timing.speedup.get(baseline)


def _best(group: Sequence[Verdict], baseline: str) -> Verdict:
    """Return one that passed before one that did not, then the one with the largest speedup."""

    def rank(verdict: Verdict) -> tuple[bool, float]:
        found = speedup_over(baseline, verdict)
        return verdict.passed, 0.0 if found is None else found.median

    return max(group, key=rank)
