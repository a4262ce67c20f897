"""A search from beginning to end: what is tuned, the descent, the fair comparison, the grading."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.lane import Lane, open_oracles
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import UNKNOWN_TIME, Verdict
from kernelgen.problem.record import Backend, Problem, device_of
from kernelgen.rendering.schedule import Schedule, tried_values
from kernelgen.rendering.schedule_table import (
    changed_numbers,
    default_schedule,
    in_words,
    numbers_of,
    replaced,
    schedule_for,
)
from kernelgen.rendering.solution import render
from kernelgen.tuning.record import (
    PRESENT,
    SCHEMA_VERSION,
    Comparison,
    Outcome,
    Result,
    Trial,
    TuneRun,
)

# Of each of the two; fewer have no spread to speak of.
_REPETITIONS = 3

Measure = Callable[[str, str], Result]
"""Grades the text of a solution, whose schedule it is told in words such as `threads=256`."""

Phase = Callable[[str], None]
Grade = Callable[[str, Phase], Result]
"""Grades the text of a solution, and tells of its phases."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A problem's solution for an architecture."""

    problem: Problem
    backend: Backend
    arch: str

    @property
    def schedule(self) -> Schedule:
        """The one that the problem is rendered with at present."""
        return schedule_for(self.problem, self.backend, self.arch)

    def text(self, schedule: Schedule) -> str:
        """Return the solution with another schedule.

        Raises:
            UserError: the template does not take it.
        """
        numbers = changed_numbers(schedule, self.schedule)
        settings = {f"schedule.{name}": str(value) for name, value in numbers.items()}
        return render(self.problem, self.backend, settings, self.arch)


def tune(
    target: Target,
    measure: Measure,
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> TuneRun | Result:
    """Search for a faster schedule; nothing is written.

    Where the present schedule does not pass, there is nothing to compare with, and what grading it
    came to is returned.

    Args:
        target: what is tuned.
        measure: grades a solution.
        budget_s: wall time of the search; what has begun is finished, and six grades follow.
        clock: in seconds.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
    """
    search = _Search(target, measure)
    ends = clock() + budget_s
    present = search.grade(target.schedule)
    assert present is not None, "the first of all schedules was graded before"
    if present.time_ms is None:
        return present
    complete = search.descend(present, lambda: clock() >= ends)
    comparison = None if search.best == search.present else search.compare()
    better = comparison is not None and comparison.convincing
    base = default_schedule(target.problem, target.backend, target.arch)
    return TuneRun(
        schema=SCHEMA_VERSION,
        problem=target.problem.name,
        backend=target.backend,
        arch=target.arch,
        device=search.trials[0].result.device,
        budget_s=budget_s,
        complete=complete,
        present=numbers_of(search.present),
        trials=tuple(search.trials),
        best=None if comparison is None else numbers_of(search.best),
        comparison=comparison,
        outcome=Outcome.NOT_RECORDED if better else Outcome.STAYS,
        entry=changed_numbers(search.best, base) if better else None,
    )


class _Search:
    """A search under way: what was tried, and the fastest schedule that passed."""

    def __init__(self, target: Target, measure: Measure) -> None:
        self._target, self._measure = target, measure
        self._seen: set[tuple[str, ...]] = set()
        self.trials: list[Trial] = []
        self.present = self.best = target.schedule

    def descend(self, fastest: Result, spent: Callable[[], bool]) -> bool:
        """Change one number after another, until no value of any improves the best schedule.

        A change counts only if it is clearly faster, so that the search does not follow the noise,
        and a number that makes no difference stays.

        Returns:
            Whether all was tried before the budget was spent.
        """
        tries = tried_values(type(self.present))
        moves = [(name, value) for name, values in tries.items() for value in values]
        before = None
        while before != self.best:
            before = self.best
            for name, value in moves:
                schedule = replaced(self.best, {name: value})
                if schedule is None or schedule == self.best:
                    continue
                if spent():
                    return False
                result = self.grade(schedule)
                if result is not None and result.clearly_below(fastest):
                    self.best, fastest = schedule, result
        return True

    def compare(self) -> Comparison:
        """Grade the present schedule and the best by turns, so that drift falls on both alike."""
        times: dict[Schedule, list[float]] = {self.present: [], self.best: []}
        total = _REPETITIONS * len(times)
        failure = ""
        for index in range(total):
            schedule = (self.present, self.best)[index % 2]
            words = self._words(schedule)
            text = self._target.text(schedule)
            result = self._measure(text, f"comparing {index + 1} of {total}: {words}")
            if result.time_ms is None:
                failure = f"{words}: {result.status.value}: {result.reason}"
                break
            times[schedule].append(result.time_ms)
        present_ms, best_ms = (tuple(times[one]) for one in (self.present, self.best))
        return Comparison(present_ms=present_ms, best_ms=best_ms, failure=failure)

    def grade(self, schedule: Schedule) -> Result | None:
        """Grade a schedule; None if it does not render, or to nothing but what was graded before.

        A template need not use every number.
        """
        try:
            text = self._target.text(schedule)
        except UserError:
            return None
        # Without the comment at its top, which names the schedule.
        code = tuple(itertools.dropwhile(lambda line: line.startswith("#"), text.splitlines()))
        if code in self._seen:
            return None
        self._seen.add(code)
        began = time.monotonic()
        result = self._measure(text, self._words(schedule))
        seconds = time.monotonic() - began
        self.trials.append(Trial(schedule=numbers_of(schedule), result=result, seconds=seconds))
        return result

    def _words(self, schedule: Schedule) -> str:
        return in_words(changed_numbers(schedule, self.present)) or PRESENT


@contextmanager
def grader(target: Target) -> Iterator[Grade]:
    """Give what grades a text with the grader's own processes and clock, until the block is left.

    All texts share what the processes are started from, and so what that has imported.

    Raises:
        KernelgenFault: the processes cannot be started.
    """
    options = GradeOptions(problem=target.problem, device=device_of(target.backend), baselines=())
    numbers = itertools.count()
    path = Path(f"{target.problem.name}.py")
    with (
        scratch_folder() as scratch,
        contextlib.closing(open_oracles(scratch, compiles=False)) as oracles,
        Lane(scratch, oracles) as lane,
    ):

        def graded(text: str, phase: Phase) -> Result:
            job = Job(path=path, data=text.encode(), options=options)
            return result_of(lane.grade_one(job, next(numbers), phase))

        yield graded


def result_of(verdict: Verdict) -> Result:
    """Return what a verdict says of a schedule."""
    timing = verdict.timing
    unknown = (text for text in verdict.warnings if text.startswith(UNKNOWN_TIME))
    return Result(
        status=verdict.status,
        owner=verdict.owner,
        reason=verdict.reason or next(unknown, ""),
        time_ms=None if timing is None else timing.candidate_ms,
        quartiles_ms=None if timing is None else timing.subjects[CANDIDATE].quartiles_ms,
        device=verdict.device,
    )
