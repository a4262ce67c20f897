"""Figures of a run of many solutions: pass rate, fast_p and geometric mean.

All of it is derived from the run's verdicts and is no part of the JSON report. `docs/statistics.md`
explains the figures to users.
"""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Literal

from kernelgen.grading.timing.times import Says, Speedup
from kernelgen.grading.verdict import Owner, Run, Verdict
from kernelgen.report.printable import printable

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p for which fast_p is given."""

USUAL_BASELINES = ("eager", "compile")
"""Those with columns of their own in tables."""

_SAYS: tuple[Says, ...] = ("faster", "same", "slower")
# Names that stand below a table; all of them are in the record.
_NAMED = 5


def suite_facts(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the figures of a run as pairs of a name and what is to be said.

    First each solution is a unit. Each problem with the best of its solutions is one after that,
    where it has several. What is the problem's or the grader's doing is in no figure, for nobody
    knows what it would have been.
    """
    judged = [verdict for verdict in run.verdicts if verdict.owner is Owner.CANDIDATE]
    if others := [one.solution for one in run.verdicts if one.owner is not Owner.CANDIDATE]:
        yield "not judged, and in no figure below", f"{len(others)} ({some(others)})"
    by_problem: dict[str, list[Verdict]] = {}
    for verdict in judged:
        # Where no problem could be found, nobody knows whether two solutions have the same one.
        by_problem.setdefault(verdict.problem or verdict.solution, []).append(verdict)
    if judged:
        yield from _facts("solution", [[verdict] for verdict in judged], baselines_of(run))
    if len(by_problem) < len(judged):
        yield from _facts("problem", list(by_problem.values()), baselines_of(run))


def _facts(
    unit: Literal["solution", "problem"], groups: Sequence[Sequence[Verdict]], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the figures by a unit, of whose verdicts each group is one."""
    passed = sum(any(verdict.passed for verdict in group) for group in groups)
    best = ", the best solution of each" if unit == "problem" else ""
    share = f"{passed / len(groups):.0%}"
    yield "pass rate", f"{passed} of {len(groups)} {unit}s, {share}{best}"
    for baseline in names:
        units = [_best(group, baseline) for group in groups]
        name = printable(baseline)
        yield f"vs {name}", _mean_text(baseline, units, unit)
        yield f"fast_p vs {name}", ", ".join(_fast_text(p, baseline, units) for p in FAST_P)
        untimed = [v.solution for v in units if v.passed and speedup_over(baseline, v) is None]
        if untimed:
            yield f"passed without a time against {name}", some(untimed)


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
    return f"fast_{p:g} {fast / len(units):.0%}{surely}"


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
