"""Figures of a run of many solutions: pass rate, fast_p and geometric mean.

All of it is derived from the run's verdicts and is no part of the JSON report. `docs/statistics.md`
explains the figures to users.
"""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Literal

import msgspec

from kernelgen.grading.timing.times import Says, Speedup
from kernelgen.grading.verdict import Owner, Run, Verdict
from kernelgen.report.printable import printable

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p for which fast_p is given."""

USUAL_BASELINES = ("eager", "compile")
"""Those with columns of their own in tables."""

# Names that stand below a table; all of them are in the record.
_NAMED = 5


class FastP(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the judged units, failures among them, that are at least p times as fast.

    `surely_share` counts where the lower bound of the interval is at least p. Of p = 0, both are
    the share of all that passed.
    """

    p: float
    share: float
    surely_share: float


class AgainstBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """How the units of a run compare with one baseline.

    Attributes:
        fast: one for each p of `FAST_P`, in that order.
        geometric_mean: of the speedups of what passed and was timed; None if nothing was.
        says: what their intervals say, one for each of these.
        untimed: solutions that passed without a time: never a 1.0, and fast for p = 0 alone.
    """

    baseline: str
    fast: tuple[FastP, ...]
    geometric_mean: float | None
    says: tuple[Says, ...]
    untimed: tuple[str, ...]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run by one unit: each solution, or each problem with its best solution.

    `count` is of units that were judged, `passed` of these. `baselines` has one for each of
    `baselines_of` the run.
    """

    unit: Literal["solution", "problem"]
    count: int
    passed: int
    baselines: tuple[AgainstBaseline, ...]


class SuiteFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run.

    Attributes:
        solutions: with every solution as a unit.
        problems: with every problem as a unit, and for each baseline the best of its solutions: one
            that passed before one that did not, then the one with the largest speedup.
        not_judged: solutions whose verdict is the problem's or the grader's doing. They are in no
            other figure, for nobody knows what they would have been.
    """

    solutions: Figures
    problems: Figures
    not_judged: tuple[str, ...]


def suite_figures(run: Run) -> SuiteFigures:
    """Return what a run amounts to. A run without verdicts has figures too, all of them empty."""
    judged = [verdict for verdict in run.verdicts if verdict.owner is Owner.CANDIDATE]
    by_problem: dict[str, list[Verdict]] = {}
    for verdict in judged:
        # Where no problem could be found, nobody knows whether two solutions have the same one.
        by_problem.setdefault(verdict.problem or verdict.solution, []).append(verdict)
    names = baselines_of(run)
    return SuiteFigures(
        solutions=_figures("solution", [[verdict] for verdict in judged], names),
        problems=_figures("problem", list(by_problem.values()), names),
        not_judged=tuple(v.solution for v in run.verdicts if v.owner is not Owner.CANDIDATE),
    )


def suite_facts(figures: SuiteFigures) -> Iterator[tuple[str, str]]:
    """Yield the figures as pairs of a name and what is to be said.

    The problems follow the solutions where they are not the same.
    """
    if figures.not_judged:
        told = f"{len(figures.not_judged)} ({some(figures.not_judged)})"
        yield "not judged, and in no figure below", told
    both = (figures.solutions, figures.problems)
    for each in both if both[0].count != both[1].count else both[:1]:
        if not each.count:
            continue
        best = ", the best solution of each" if each.unit == "problem" else ""
        share = f"{each.passed / each.count:.0%}"
        yield "pass rate", f"{each.passed} of {each.count} {each.unit}s, {share}{best}"
        for against in each.baselines:
            name = printable(against.baseline)
            yield f"vs {name}", _mean(against, each)
            yield f"fast_p vs {name}", _fast_text(against)
            if against.untimed:
                yield f"passed without a time against {name}", some(against.untimed)


def _mean(against: AgainstBaseline, figures: Figures) -> str:
    if against.geometric_mean is None:
        return "nothing that passed was timed"
    words: tuple[Says, ...] = ("faster", "same", "slower")
    says = ", ".join(f"{against.says.count(word)} {word}" for word in words)
    behind = f"{len(against.says)} of {figures.count} {figures.unit}s"
    return f"{says}; geometric mean {against.geometric_mean:.2f}x over {behind}"


def _fast_text(against: AgainstBaseline) -> str:
    def text(fast: FastP) -> str:
        surely = f" (surely {fast.surely_share:.0%})" if fast.surely_share != fast.share else ""
        return f"fast_{fast.p:g} {fast.share:.0%}{surely}"

    return ", ".join(map(text, against.fast))


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    told = ", ".join(printable(name) for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{told} and {more} more" if more > 0 else told


def _figures(
    unit: Literal["solution", "problem"], groups: Sequence[Sequence[Verdict]], names: Sequence[str]
) -> Figures:
    """Return the figures by a unit, of whose verdicts each group is one."""
    passed = sum(any(verdict.passed for verdict in group) for group in groups)
    return Figures(
        unit=unit,
        count=len(groups),
        passed=passed,
        baselines=tuple(_against(name, [_best(group, name) for group in groups]) for name in names),
    )


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
    def rank(verdict: Verdict) -> tuple[bool, float]:
        found = speedup_over(baseline, verdict)
        return verdict.passed, 0.0 if found is None else found.median

    return max(group, key=rank)


def _against(baseline: str, judged: Sequence[Verdict]) -> AgainstBaseline:
    passed = [verdict for verdict in judged if verdict.passed]
    speedups = [found for v in passed if (found := speedup_over(baseline, v)) is not None]

    def share(p: float, factors: Sequence[float]) -> float:
        # A pass is at least 0 times as fast as anything, timed or not.
        count = sum(factor >= p for factor in factors) if p > 0 else len(passed)
        return count / max(len(judged), 1)

    medians, lower = [one.median for one in speedups], [one.ci95[0] for one in speedups]
    return AgainstBaseline(
        baseline=baseline,
        fast=tuple(
            FastP(p=p, share=share(p, medians), surely_share=share(p, lower)) for p in FAST_P
        ),
        # A record may come from a file, where a speedup may be anything.
        geometric_mean=geometric_mean(medians) if medians and min(medians) > 0 else None,
        says=tuple(found.says for found in speedups),
        untimed=tuple(v.solution for v in passed if speedup_over(baseline, v) is None),
    )
