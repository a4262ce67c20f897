"""The search for a schedule, against a grader that is made up."""

from itertools import count
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tune_grades import Grades, Numbers, failed, timed

from kernelgen.engines.schedule import CppSchedule, tried_values
from kernelgen.errors import KernelgenFault
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import ScheduleEntry
from kernelgen.tuning.search import PRESENT, Found, Grade, Target, tune

PROBLEM = load_problem("groupnorm")
CPU = Target(problem=PROBLEM, backend="cpp", arch="cpu")
GPU = Target(problem=PROBLEM, backend="cuda", arch="sm_100a")
DEFAULTS = {"batch": 512, "slice": 16384}


def searched(grade: Grade, target: Target = CPU, budget_s: float = 1e9) -> Found:
    with mock.patch("kernelgen.tuning.search.time.monotonic", count().__next__):
        return tune(target, grade, budget_s)


def best_of(found: Found) -> dict[str, int] | None:
    return None if found.best is None else msgspec.structs.asdict(found.best)


def tried_by(found: Found) -> list[Verdict]:
    return [one for one in found.verdicts if not one.solution.startswith("once more: ")]


def bowl(numbers: Numbers) -> float:
    """Fastest with batch 128 and slice 8192, and the slope of one is not the other's business."""
    return 1 + abs(numbers["batch"] - 128) / 1000 + abs(numbers["slice"] - 8192) / 100_000


def test_the_descent_finds_the_bottom_and_grades_nothing_twice_before_the_comparison() -> None:
    grades = Grades(bowl)
    run = searched(grades)
    assert best_of(run) == run.entry == {"batch": 128, "slice": 8192}
    assert run.complete
    tried = [one.labels for one in tried_by(run)]
    assert tried[0] == DEFAULTS
    assert len({tuple(one.items()) for one in tried}) == len(tried)
    assert grades.asked == [*tried, DEFAULTS, run.entry]
    assert run.verdicts[0].solution == PRESENT
    assert run.verdicts[-1].solution == "once more: batch=128 slice=8192"


def test_only_numbers_that_differ_from_the_defaults_are_in_the_entry() -> None:
    run = searched(Grades(lambda numbers: abs(numbers["batch"] - 64) + 1.0))
    assert run.entry == {"batch": 64}


def test_the_search_begins_with_the_table_and_may_end_with_the_defaults() -> None:
    entry = ScheduleEntry(numbers={"batch": 64}, lines={"batch": 1})
    problem = msgspec.structs.replace(PROBLEM, schedules={"cpu": entry})
    target = msgspec.structs.replace(CPU, problem=problem)
    run = searched(Grades(lambda numbers: abs(numbers["batch"] - 512) + 1.0), target)
    assert run.verdicts[0].labels == {"batch": 64, "slice": 16384}
    assert best_of(run) == DEFAULTS
    assert run.entry == {}


def test_numbers_that_make_no_difference_stay() -> None:
    run = searched(Grades(lambda _: 1.0))
    assert (run.best, run.entry) == (None, None)
    values = tried_values(CppSchedule).values()
    assert len(run.verdicts) == 1 + sum(len(tries) - 1 for tries in values)


def test_times_whose_quartiles_overlap_are_no_improvement() -> None:
    run = searched(Grades(lambda numbers: timed(1.0 if numbers["batch"] == 64 else 1.1, 0.06)))
    assert run.best is None


def test_a_schedule_that_is_wrong_never_wins() -> None:
    run = searched(Grades(lambda n: failed() if n["batch"] == 64 else bowl(n)))
    assert run.entry == {"batch": 128, "slice": 8192}
    wrong = [one for one in run.verdicts if one.status is Status.WRONG_VALUES]
    assert {one.labels["batch"] for one in wrong} == {64}


def test_illegal_combinations_are_not_graded() -> None:
    grades = Grades(lambda numbers: 4096 / numbers["batch"] + numbers["slice"] / 4096)
    searched(grades)
    for numbers in grades.asked:
        CppSchedule(**numbers)
    grades = Grades(lambda numbers: 1.0 + (numbers["sets"] != 1))
    assert searched(grades, GPU).entry == {"sets": 1}
    assert all(one["listeners"] <= one["sets"] for one in grades.asked)


def test_the_budget_ends_the_search_and_the_comparison_follows() -> None:
    grades = Grades(bowl)
    run = searched(grades, budget_s=3)
    assert not run.complete
    assert [one.labels["batch"] for one in tried_by(run)] == [512, 64, 128]
    assert best_of(run) == {"batch": 128, "slice": 16384}
    assert len(grades.asked) == 3 + 2
    assert len(searched(Grades(bowl), budget_s=1e-9).verdicts) == 1


@pytest.mark.parametrize(
    ("again", "present_again", "convincing"),
    [
        (timed(1.2, 0.05), timed(1.5, 0.05), True),
        (timed(1.45, 0.05), timed(1.5, 0.05), False),
        (timed(1.6, 0.05), timed(1.5, 0.05), False),
        (failed(), timed(1.5), False),
        (timed(1.2), failed(), False),
    ],
)
def test_the_winner_has_to_be_clearly_faster_once_more(
    again: Verdict, present_again: Verdict, *, convincing: bool
) -> None:
    of_best, of_present = iter([timed(1.0), again]), iter([timed(2.0), present_again])

    def rule(numbers: Numbers) -> Verdict | float:
        if numbers == DEFAULTS:
            return next(of_present)
        return next(of_best) if numbers == {**DEFAULTS, "batch": 64} else 9.0

    run = searched(Grades(rule))
    assert best_of(run) == {**DEFAULTS, "batch": 64}
    assert run.entry == ({"batch": 64} if convincing else None)
    assert [one.status for one in run.verdicts[-2:]] == [present_again.status, again.status]


def test_a_present_schedule_that_fails_ends_it() -> None:
    (only,) = searched(Grades(lambda _: failed(Status.BUILD_ERROR, "no such header"))).verdicts
    assert only.status is Status.BUILD_ERROR


def test_a_fault_of_the_grader_is_passed_on() -> None:
    def rule(_: Numbers) -> Verdict:
        raise KernelgenFault("no more processes")

    with pytest.raises(KernelgenFault):
        searched(Grades(rule))


def test_what_renders_to_the_same_code_is_not_graded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(_target: Target, schedule: CppSchedule) -> str:
        return f"# schedule: batch={schedule.batch} slice={schedule.slice}\n{schedule.batch}\n"

    monkeypatch.setattr(Target, "text", text)
    labels = [one.labels for one in searched(Grades(lambda _: 1.0)).verdicts]
    assert sorted(one["batch"] for one in labels) == [64, 128, 256, 512, 1024, 2048]
    assert {one["slice"] for one in labels} == {16384}


@pytest.mark.long
@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_whatever_the_times_are_it_ends_with_the_fastest_that_was_seen(random: object) -> None:
    times: dict[tuple[int, ...], float] = {}

    def rule(numbers: Numbers) -> float:
        return times.setdefault(tuple(numbers.values()), random.uniform(1, 2))  # type: ignore[attr-defined]

    run = searched(Grades(rule), GPU)
    best = best_of(run) or run.verdicts[0].labels
    assert min(times.values()) == times[tuple(best.values())]


def test_a_trial_says_how_to_render_it() -> None:
    text = CPU.text(CppSchedule(batch=64))
    again = "# render again: kernelgen render groupnorm --backend cpp --set schedule.batch=64\n"
    assert again in text
