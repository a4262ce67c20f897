"""A search from beginning to end: the present schedule, the descent, the fair comparison."""

import time
from collections.abc import Callable

from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.schedule_table import (
    changed_numbers,
    default_schedule,
    in_words,
    numbers_of,
)
from kernelgen.tuning.record import SCHEMA_VERSION, Comparison, Outcome, Result, TuneRun
from kernelgen.tuning.search import Found, descend
from kernelgen.tuning.trials import Grade, Target, Trials, Watcher

# Of each of the two; fewer have no spread to speak of.
_REPETITIONS = 3
PRESENT = "the present schedule"


class PresentFails(Exception):  # noqa: N818 (an ending, whose doing the result says)
    """The schedule that a search would begin with does not pass.

    Attributes:
        result: of grading it.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result.reason)
        self.result = result


def tune(
    target: Target,
    grade: Grade,
    watcher: Watcher,
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> TuneRun:
    """Search for a faster schedule; nothing is written.

    Args:
        target: what is tuned.
        grade: grades the text of a solution.
        watcher: told of each grade.
        budget_s: wall time of the search; what has begun is finished, and six grades follow.
        clock: in seconds.

    Raises:
        PresentFails: there is nothing to compare with.
        KernelgenFault: the grader's own processes cannot be started.
    """
    present = target.schedule
    trials = Trials(target, grade, watcher)
    ends = clock() + budget_s
    first = _grade_present(trials, present)
    found = _search(trials, present, first, lambda: clock() >= ends)
    comparison = None if found.best == present else _compare(trials, present, found.best)
    better = comparison is not None and comparison.convincing
    base = default_schedule(target.problem, target.backend)
    return TuneRun(
        schema=SCHEMA_VERSION,
        problem=target.problem.name,
        backend=target.backend,
        arch=target.arch,
        device=first.device,
        budget_s=budget_s,
        complete=found.complete,
        present=numbers_of(present),
        trials=tuple(trials.done),
        best=None if comparison is None else numbers_of(found.best),
        comparison=comparison,
        outcome=Outcome.NOT_RECORDED if better else Outcome.STAYS,
        entry=changed_numbers(found.best, base) if better else None,
    )


def _grade_present(trials: Trials, present: Schedule) -> Result:
    first = trials.measure(present, PRESENT)
    assert first is not None, "the first of all schedules was graded before"
    if first.time_ms is None:
        raise PresentFails(first)
    return first


def _search(trials: Trials, present: Schedule, first: Result, spent: Callable[[], bool]) -> Found:
    def measure(schedule: Schedule) -> Result | None:
        return trials.measure(schedule, in_words(changed_numbers(schedule, present)))

    return descend(present, first, measure, spent)


def _compare(trials: Trials, present: Schedule, best: Schedule) -> Comparison:
    """Grade two schedules by turns, so that what drifts falls on both alike."""
    times: dict[Schedule, list[float]] = {present: [], best: []}
    total = _REPETITIONS * len(times)
    failure = ""
    for index in range(total):
        schedule = (present, best)[index % 2]
        words = PRESENT if schedule == present else in_words(changed_numbers(best, present))
        result = trials.repeat(schedule, f"comparing {index + 1} of {total}: {words}")
        if result.time_ms is None:
            failure = f"{words}: {result.status.value}: {result.reason}"
            break
        times[schedule].append(result.time_ms)
    return Comparison(present_ms=tuple(times[present]), best_ms=tuple(times[best]), failure=failure)
