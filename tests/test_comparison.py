"""Two runs side by side."""

import math
from typing import Any

import msgspec
import pytest
from compare_runs import run_of, timed, timing
from report_runs import CASE, CORRECTNESS, TIMING, failed, passed

from kernelgen.comparison.comparing import compare, pairs
from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.errors import ExitCode, UserError
from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import (
    Owner,
    Run,
    Status,
    Verdict,
)
from kernelgen.report.json_report import Recorded

CRASHED = failed(Status.CRASHED, "s.py")
FAULT = failed(Status.GRADER_ERROR, "s.py")
NO_DEVICE = failed(Status.NO_DEVICE, "s.py")


def compared(old: Run, new: Run, bound: float = 2.0, **options: Any) -> Comparison:
    return compare(
        Recorded(name="old.json", run=old),
        Recorded(name="new.json", run=new),
        bound_percent=bound,
        **options,
    )


def one(old: Verdict, new: Verdict, bound: float = 2.0) -> Compared:
    (found,) = compared(run_of(old), run_of(new), bound).solutions
    return found


def of_times(old: Timing | None, new: Timing | None, bound: float = 2.0) -> Compared:
    return one(timed("s.py", old), timed("s.py", new), bound)


@pytest.mark.parametrize(
    ("new_ms", "outcome"),
    [
        (5.5, Outcome.REGRESSED),
        (5.06, Outcome.SLOWER),
        (5.0, Outcome.SAME),
        (4.9, Outcome.FASTER),
    ],
)
def test_the_interval_and_the_bound_decide(new_ms: float, outcome: Outcome) -> None:
    found = of_times(timing(5.0, seed=1), timing(new_ms, seed=2))
    assert found.outcome is outcome
    assert found.speed is not None
    assert found.speed.median == pytest.approx(5.0 / new_ms, rel=0.005)
    assert found.old_ms == pytest.approx(5.0, rel=0.003)
    assert found.new_ms == pytest.approx(new_ms, rel=0.003)
    assert found.speedups["eager"] == pytest.approx((9.0 / 5.0, 9.0 / new_ms), rel=0.005)


def test_an_uncertain_slowdown_is_no_regression() -> None:
    found = of_times(timing(5.0, seed=1, noise=0.2), timing(5.3, seed=2, noise=0.2))
    assert found.outcome is Outcome.SAME


def test_speedups_over_what_only_one_run_timed_are_not_side_by_side() -> None:
    found = of_times(timing(5.0, seed=1), timing(5.5, seed=2, eager_ms=None))
    assert (found.outcome, found.speedups) == (Outcome.REGRESSED, {})


@pytest.mark.parametrize(
    ("old", "new", "outcome", "code"),
    [
        (passed("s.py"), CRASHED, Outcome.BROKE, ExitCode.CANDIDATE_FAILED),
        (CRASHED, passed("s.py"), Outcome.MENDED, ExitCode.OK),
        (CRASHED, failed(Status.TIMEOUT, "s.py"), Outcome.FAILS, ExitCode.OK),
        (passed("s.py"), FAULT, Outcome.NOT_JUDGED, ExitCode.GRADER_FAULT),
        (passed("s.py"), NO_DEVICE, Outcome.NOT_JUDGED, ExitCode.GRADER_FAULT),
        (CRASHED, FAULT, Outcome.NOT_JUDGED, ExitCode.OK),
        (FAULT, passed("s.py"), Outcome.NOT_COMPARED, ExitCode.OK),
        (FAULT, CRASHED, Outcome.NOT_COMPARED, ExitCode.OK),
        (
            passed("s.py"),
            failed(Status.OUT_OF_MEMORY, "s.py", owner=Owner.GRADER),
            Outcome.NOT_JUDGED,
            ExitCode.GRADER_FAULT,
        ),
        (timed("s.py", None), passed("s.py"), Outcome.NOT_COMPARED, ExitCode.OK),
    ],
)  # fmt: skip
def test_what_became_of_it(old: Verdict, new: Verdict, outcome: Outcome, code: ExitCode) -> None:
    result = compared(run_of(old), run_of(new))
    assert [found.outcome for found in result.solutions] == [outcome]
    assert result.exit_code is code
    assert (result.solutions[0].old_status, result.solutions[0].new_status) == (
        old.status, new.status,
    )  # fmt: skip


def test_of_a_selftest_the_expected_verdict_is_the_good_one() -> None:
    caught = failed(Status.TAMPERED, "s.py", expected=Status.TAMPERED)
    missed = passed("s.py", expected=Status.TAMPERED, misses=("the status is PASSED",))
    no_device = failed(Status.NO_DEVICE, "s.py", expected=Status.NO_DEVICE)
    assert one(caught, missed).outcome is Outcome.BROKE
    assert one(caught, missed).remark == "the status is PASSED"
    assert one(missed, caught).outcome is Outcome.MENDED
    assert one(missed, missed).outcome is Outcome.FAILS
    assert one(caught, caught).outcome is Outcome.SAME
    assert one(no_device, no_device).outcome is Outcome.SAME
    untimed = passed("s.py", expected=Status.PASSED, timing=None)
    assert one(untimed, untimed).outcome is Outcome.SAME


def test_a_regression_counts_before_what_could_not_be_judged() -> None:
    old = run_of(passed("a.py"), passed("s.py"))
    result = compared(old, run_of(failed(Status.CRASHED, "a.py"), FAULT))
    assert result.exit_code is ExitCode.CANDIDATE_FAILED


def test_new_and_gone_are_no_regression() -> None:
    result = compared(
        run_of(passed("s.py"), passed("gone.py")), run_of(passed("s.py"), CRASHED_ELSEWHERE)
    )
    outcomes = {found.solution: found.outcome for found in result.solutions}
    assert outcomes == {
        "s.py": Outcome.SAME, "new.py": Outcome.NEW, "gone.py": Outcome.GONE,
    }  # fmt: skip
    assert result.exit_code is ExitCode.OK


CRASHED_ELSEWHERE = failed(Status.CRASHED, "new.py")


def matched(old: list[Verdict], new: list[Verdict]) -> set[tuple[str, str]]:
    return {
        (before.solution if before else "", after.solution if after else "")
        for before, after in pairs(old, new)
    }


def test_solutions_are_matched_by_path() -> None:
    assert matched([passed("./a.py"), passed("b.py")], [passed("b.py"), passed("a.py")]) == {
        ("./a.py", "a.py"), ("b.py", "b.py"),
    }  # fmt: skip
    found = one(passed("a.py", problem="p"), failed(Status.CRASHED, "a.py", problem="q"))
    assert found.outcome is Outcome.NOT_COMPARED
    assert found.remark == "the problem is not the same: q, was p"


def test_a_file_that_moved_is_matched_by_its_name() -> None:
    assert matched([passed("old/a.py")], [passed("new/a.py")]) == {("old/a.py", "new/a.py")}


def test_an_ambiguous_name_is_not_matched() -> None:
    old, new = [passed("x/a.py"), passed("y/a.py")], [passed("z/a.py")]
    assert matched(old, new) == {("x/a.py", ""), ("y/a.py", ""), ("", "z/a.py")}


def test_the_same_name_of_another_problem_is_not_matched() -> None:
    old, new = passed("x/a.py", problem="p"), passed("y/a.py", problem="q")
    assert matched([old], [new]) == {("x/a.py", ""), ("", "y/a.py")}


def test_a_solution_that_lost_its_problem_is_still_found() -> None:
    lost = failed(Status.BROKEN_CONTRACT, "a.py", problem="")
    found = one(passed("a.py"), lost)
    assert (found.outcome, found.problem) == (Outcome.BROKE, "groupnorm")


def test_runs_without_a_common_solution_are_refused() -> None:
    with pytest.raises(UserError, match=r"old\.json and new\.json: no solution is in both"):
        compared(run_of(passed("a.py")), run_of(passed("b.py")))
    with pytest.raises(UserError, match="no solution is in both"):
        compared(run_of(), run_of())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"torch": "2.12.0"}, "torch is 2.12.0, was 2.11.0"),
        ({"gpu": "NVIDIA A100"}, "gpu is NVIDIA A100, was NVIDIA H200"),
        ({"cuda": None, "gpu": "X"}, "gpu is X"),
    ],
)
def test_another_machine_is_refused_unless_it_is_allowed(
    changes: dict[str, Any], complaint: str
) -> None:
    old, new = run_of(passed("s.py")), run_of(passed("s.py"), **changes)
    with pytest.raises(UserError, match=f"not of one machine: {complaint}.*--across-devices"):
        compared(old, new)
    result = compared(old, new, across_devices=True)
    assert result.differences[0].startswith(complaint)
    assert result.solutions[0].outcome is Outcome.SAME


def test_another_device_is_refused_though_the_environment_does_not_tell() -> None:
    new = msgspec.structs.replace(run_of(passed("s.py", device="NVIDIA A100")), environment={})
    with pytest.raises(UserError, match="device is NVIDIA A100, was NVIDIA H200"):
        compared(run_of(passed("s.py")), new)


def test_the_processor_counts_on_a_cpu_alone() -> None:
    old, new = run_of(passed("s.py")), run_of(passed("s.py"), cpu_threads=8, python="3.13.0")
    assert compared(old, new).differences == ()
    bare = [
        msgspec.structs.replace(run, environment={"cpu_threads": threads})
        for run, threads in ((old, 16), (new, 8))
    ]
    with pytest.raises(UserError, match="cpu_threads is 8, was 16"):
        compared(bare[0], bare[1])


def corrected(**changes: Any) -> Verdict:
    correctness = msgspec.structs.replace(CORRECTNESS, **changes)
    return passed("s.py", correctness=correctness)


def test_a_problem_of_another_size_is_not_compared() -> None:
    larger = msgspec.structs.replace(TIMING, minimal_bytes=1)
    found = one(passed("s.py"), timed("s.py", larger))
    assert found.outcome is Outcome.NOT_COMPARED
    assert found.remark == (
        "the problem is not the same: the bytes to be moved are 1, were 15032385536"
    )
    case = msgspec.structs.replace(CASE, elements=7)
    assert one(passed("s.py"), corrected(cases=(case,))).outcome is Outcome.NOT_COMPARED


@pytest.mark.parametrize("samples", [(), (5.0,), (5.0, 0.0, 5.0), (5.0, -1.0), (5.0, math.inf)])
def test_samples_that_cannot_be_are_not_compared(samples: tuple[float, ...]) -> None:
    odd = msgspec.structs.replace(TIMING, samples={"candidate": samples})
    found = of_times(TIMING, odd)
    assert found.outcome is Outcome.NOT_COMPARED
    assert found.remark == "it has no time, or no samples of it, in one of the runs"


def test_passes_by_different_rules_are_not_compared() -> None:
    loose = {"tolerance": "0.001", "quick": "3 samples, no torch.compile"}
    found = one(passed("s.py"), passed("s.py", overrides=loose))
    assert found.outcome is Outcome.NOT_COMPARED
    told = "the rule is not the same: --tolerance (0.001), was the problem's own"
    assert found.remark == told
    quick = passed("s.py", overrides={"quick": "3 samples, no torch.compile"})
    assert one(passed("s.py"), quick).outcome is Outcome.SAME
