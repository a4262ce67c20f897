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
from kernelgen.report.suite import FAST_P, baselines_of, mean_speedup, pass_at, suite_facts


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


def fact(run: Run, name: str, unit: int = 0) -> str:
    return [told for key, told in suite_facts(run) if key == name][unit]


def test_failures_are_in_every_denominator_and_never_a_one() -> None:
    sure = "fast_0 80%, fast_0.5 40%, fast_0.8 40%, fast_1 40% (surely 20%)"
    assert fact(RUN, "fast_p vs eager") == f"{sure}, fast_1.5 20%, fast_2 20%"
    worse = run_of(*RUN.verdicts, *[WRONG] * 5)
    sure = "fast_0 40%, fast_0.5 20%, fast_0.8 20%, fast_1 20% (surely 10%)"
    assert fact(worse, "fast_p vs eager") == f"{sure}, fast_1.5 10%, fast_2 10%"
    assert mean_speedup("eager", worse.verdicts) == mean_speedup("eager", RUN.verdicts)


def test_the_geometric_mean_is_of_what_was_timed() -> None:
    assert mean_speedup("eager", RUN.verdicts) == pytest.approx(1.0)
    assert mean_speedup("compile", RUN.verdicts) == pytest.approx(math.sqrt(1.6))


def test_a_speedup_that_is_none_has_no_mean() -> None:
    odd = timed("odd.py", "f", eager=(0.0, 0.0, 0.0))
    assert mean_speedup("eager", [QUICK, odd]) is None
    assert fact(run_of(QUICK, odd), "vs eager") == "nothing that passed was timed"


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
    first, *others = suite_facts(run_of(*RUN.verdicts, verdict))
    assert first == ("not judged, and in no figure below", "1 (x.py)")
    assert others == list(suite_facts(RUN))


@pytest.mark.parametrize("status", list(Status), ids=[status.value for status in Status])
def test_every_status_is_a_pass_a_failure_or_not_judged(status: Status) -> None:
    verdict = next(one for one in every_status().verdicts if one.status is status)
    facts = dict(suite_facts(run_of(verdict)))
    assert ("pass rate" in facts) != ("not judged, and in no figure below" in facts)
    if "pass rate" in facts:
        assert facts["pass rate"].startswith("1 of 1" if status is Status.PASSED else "0 of 1")


def test_the_best_solution_of_each_problem_is_taken_baseline_by_baseline() -> None:
    other = timed("other.py", "a", eager=(1.0, 1.1, 1.2), compile=(2.9, 3.0, 3.1))
    wrong = failed(Status.CRASHED, "crash.py", problem="a")
    run, problems = run_of(wrong, other, QUICK, WRONG), 1
    assert fact(run, "pass rate", problems) == "1 of 2 problems, 50%, the best solution of each"
    mean = "1 faster, 0 same, 0 slower; geometric mean {} over 1 of 2 problems"
    assert fact(run, "vs eager", problems) == mean.format("4.00x")
    assert fact(run, "vs compile", problems) == mean.format("3.00x")
    assert fact(run, "fast_p vs eager", problems).count(" 50%") == len(FAST_P)


def test_solutions_of_unknown_problems_are_not_of_one_problem() -> None:
    lost = [failed(Status.BROKEN_CONTRACT, name, problem="") for name in ("a.py", "b.py")]
    none = "0 of 2 solutions, 0%"
    assert list(suite_facts(run_of(*lost))) == [("pass rate", none), ("compile rate", "0 of 2, 0%")]


def test_baselines_stand_in_a_fixed_order() -> None:
    many = passed(timing=msgspec.structs.replace(TIMING, speedup={
        name: Speedup(median=1.0, ci95=(0.9, 1.1)) for name in ("z", "compile", "b", "eager")
    }))  # fmt: skip
    assert baselines_of(run_of(many)) == ("eager", "compile", "b", "z")


def test_pass_at_k_is_the_chance_that_one_of_k_samples_passes() -> None:
    assert pass_at(1, 4, 1) == pytest.approx(1 / 4)
    assert pass_at(2, 4, 1) == pytest.approx(1 / 2)  # three of the six pairs
    assert (pass_at(3, 4, 2), pass_at(4, 4, 0)) == (1.0, 0.0)
    tried = [failed(Status.BUILD_ERROR, f"{n}.py", problem=p) for n in range(3) for p in "ab"]
    run = run_of(*tried, passed("good.py", problem="a", timing=None))
    assert fact(run, "pass@1") == "12% of 2 problems"
    assert fact(run, "pass@3") == "38% of 2 problems"
    assert fact(run, "compile rate") == "1 of 7, 14%"


def test_an_empty_run_has_no_figures() -> None:
    assert list(suite_facts(run_of())) == []


def test_the_figures_in_words() -> None:
    grader = failed(Status.GRADER_ERROR, "fault.py")
    facts = list(suite_facts(run_of(*RUN.verdicts, grader)))
    half, none = "(surely 20%)", "fast_2 20% (surely 0%)"
    assert facts == [
        ("not judged, and in no figure below", "1 (fault.py)"),
        ("pass rate", "4 of 5 solutions, 80%"),
        ("compile rate", "4 of 5, 80%"),
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
    assert told in list(suite_facts(run))


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
