"""Pass rate, fast_p and geometric mean of a run."""

import io
import math
from typing import Any

import msgspec
import pytest
from report_runs import TIMING, every_status, failed, passed, run_of
from rich.console import Console

from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.report.run_table import show
from kernelgen.report.suite import FAST_P, AgainstBaseline, suite_facts, suite_figures


def timed(name: str, problem: str, **speedups: tuple[float, float, float]) -> Verdict:
    """Return a pass with these speedups, each the lower bound, the median and the upper bound."""
    found = {
        baseline: Speedup(median=median, ci95=(low, high))
        for baseline, (low, median, high) in speedups.items()
    }
    return passed(name, problem=problem, timing=msgspec.structs.replace(TIMING, speedup=found))


QUICK = timed("quick.py", "a", eager=(3.9, 4.0, 4.1), compile=(1.9, 2.0, 2.1))
EQUAL = timed("equal.py", "b", eager=(0.95, 1.0, 1.05))
SLOW = timed("slow.py", "c", eager=(0.24, 0.25, 0.26), compile=(0.7, 0.8, 0.9))
WRONG = failed(Status.WRONG_VALUES, "wrong.py", problem="d")
UNTIMED = passed("untimed.py", problem="e", timing=None)
RUN = run_of(QUICK, EQUAL, SLOW, WRONG, UNTIMED)


def against(run: Run, name: str) -> AgainstBaseline:
    return next(one for one in suite_figures(run).solutions.baselines if one.baseline == name)


def shares(found: AgainstBaseline) -> dict[float, float]:
    return {fast.p: fast.share for fast in found.fast}


def test_failures_are_in_every_denominator_and_never_a_one() -> None:
    found = against(RUN, "eager")
    assert shares(found) == {0.0: 0.8, 0.5: 0.4, 0.8: 0.4, 1.0: 0.4, 1.5: 0.2, 2.0: 0.2}
    worse = against(run_of(*RUN.verdicts, *[WRONG] * 5), "eager")
    assert shares(worse) == {p: share / 2 for p, share in shares(found).items()}
    assert worse.geometric_mean == found.geometric_mean


def test_the_lower_bound_says_what_is_sure() -> None:
    sure = {fast.p: fast.surely_share for fast in against(RUN, "eager").fast}
    assert sure == {0.0: 0.8, 0.5: 0.4, 0.8: 0.4, 1.0: 0.2, 1.5: 0.2, 2.0: 0.2}


def test_a_pass_without_a_time_is_named_and_is_fast_for_0_alone() -> None:
    found = against(RUN, "compile")
    assert found.untimed == ("equal.py", "untimed.py")
    assert shares(found) == {0.0: 0.8, 0.5: 0.4, 0.8: 0.4, 1.0: 0.2, 1.5: 0.2, 2.0: 0.2}
    assert found.says == ("faster", "slower")


def test_the_geometric_mean_is_of_what_was_timed() -> None:
    found = against(RUN, "eager")
    assert found.geometric_mean == pytest.approx(1.0)
    assert found.says == ("faster", "same", "slower")
    assert against(RUN, "compile").geometric_mean == pytest.approx(math.sqrt(1.6))


def test_a_speedup_that_is_none_has_no_mean() -> None:
    odd = timed("odd.py", "f", eager=(0.0, 0.0, 0.0))
    assert against(run_of(QUICK, odd), "eager").geometric_mean is None


@pytest.mark.parametrize(
    "verdict",
    [
        failed(Status.GRADER_ERROR, "x.py"),
        failed(Status.NO_DEVICE, "x.py"),
        failed(Status.INVALID_PROBLEM, "x.py"),
        failed(Status.OUT_OF_MEMORY, "x.py", owner=Owner.GRADER),
    ],
    ids=["GRADER_ERROR", "NO_DEVICE", "INVALID_PROBLEM", "grader's OUT_OF_MEMORY"],
)
def test_what_is_not_the_candidate_s_doing_is_counted_apart(verdict: Verdict) -> None:
    found = suite_figures(run_of(*RUN.verdicts, verdict))
    assert found.not_judged == ("x.py",)
    assert found.solutions == suite_figures(RUN).solutions
    assert found.problems == suite_figures(RUN).problems


@pytest.mark.parametrize("status", list(Status), ids=[status.value for status in Status])
def test_every_status_is_a_pass_a_failure_or_not_judged(status: Status) -> None:
    verdict = next(one for one in every_status().verdicts if one.status is status)
    found = suite_figures(run_of(verdict))
    assert found.solutions.count + len(found.not_judged) == 1
    assert found.solutions.passed == (status is Status.PASSED)


def test_the_best_solution_of_each_problem_is_taken_baseline_by_baseline() -> None:
    other = timed("other.py", "a", eager=(1.0, 1.1, 1.2), compile=(2.9, 3.0, 3.1))
    wrong = failed(Status.CRASHED, "crash.py", problem="a")
    found = suite_figures(run_of(wrong, other, QUICK, WRONG)).problems
    assert (found.unit, found.count, found.passed) == ("problem", 2, 1)
    means = {one.baseline: one.geometric_mean for one in found.baselines}
    assert means == {"eager": pytest.approx(4.0), "compile": pytest.approx(3.0)}
    assert [fast.share for fast in found.baselines[0].fast] == [0.5] * len(FAST_P)


def test_solutions_of_unknown_problems_are_not_of_one_problem() -> None:
    lost = [failed(Status.BROKEN_CONTRACT, name, problem="") for name in ("a.py", "b.py")]
    assert suite_figures(run_of(*lost)).problems.count == 2


def test_baselines_stand_in_a_fixed_order() -> None:
    many = passed(timing=msgspec.structs.replace(TIMING, speedup={
        name: Speedup(median=1.0, ci95=(0.9, 1.1)) for name in ("z", "compile", "b", "eager")
    }))  # fmt: skip
    names = [one.baseline for one in suite_figures(run_of(many)).solutions.baselines]
    assert names == ["eager", "compile", "b", "z"]


def test_an_empty_run_has_empty_figures() -> None:
    found = suite_figures(run_of())
    assert found.solutions.count == 0
    assert (found.solutions.baselines, found.not_judged) == ((), ())
    assert list(suite_facts(found)) == []


def test_the_figures_in_words() -> None:
    grader = failed(Status.GRADER_ERROR, "fault.py")
    facts = list(suite_facts(suite_figures(run_of(*RUN.verdicts, grader))))
    half, none = "(surely 20%)", "fast_2 20% (surely 0%)"
    assert facts == [
        ("not judged, and in no figure below", "1 (fault.py)"),
        ("pass rate", "4 of 5 solutions, 80%"),
        ("vs eager", "1 faster, 1 same, 1 slower; geometric mean 1.00x over 3 of 5 solutions"),
        (
            "fast_p vs eager",
            f"fast_0 80%, fast_0.5 40%, fast_0.8 40%, fast_1 40% {half}, fast_1.5 20%, fast_2 20%",
        ),
        ("passed without a time against eager", "untimed.py"),
        ("vs compile", "1 faster, 0 same, 1 slower; geometric mean 1.26x over 2 of 5 solutions"),
        (
            "fast_p vs compile",
            f"fast_0 80%, fast_0.5 40%, fast_0.8 40% {half}, fast_1 20%, fast_1.5 20%, {none}",
        ),
        ("passed without a time against compile", "equal.py, untimed.py"),
    ]


def test_problems_have_their_own_lines_where_they_are_not_the_solutions() -> None:
    run = run_of(QUICK, SLOW, timed("b.py", "a", eager=(1, 1, 1)))
    told = ("pass rate", "2 of 2 problems, 100%, the best solution of each")
    assert told in list(suite_facts(suite_figures(run)))


def shown(run: Run, **options: Any) -> str:
    file = io.StringIO()
    show(run, Console(file=file, color_system=None, highlight=False, **options))
    return file.getvalue()


def test_they_stand_below_the_table_of_more_than_one_solution() -> None:
    assert "pass rate: 4 of 5 solutions, 80%\n" in shown(RUN)
    assert "pass rate" not in shown(run_of(QUICK))


@pytest.mark.parametrize("width", [None, 40])
def test_a_name_cannot_forge_a_line(width: int | None) -> None:
    hostile = [passed(f"\x1b[2J{'x' * 30}\r\n9 of 9 passed {n}.py", timing=None) for n in range(9)]
    options = {} if width is None else {"width": width, "force_terminal": True}
    text = shown(run_of(QUICK, *hostile), **options)
    assert not set(text) & set("\x1b\r")
    assert not any(line.startswith("9 of 9") for line in text.splitlines())
    assert "and 4 more" in text.replace("\n", " ")
