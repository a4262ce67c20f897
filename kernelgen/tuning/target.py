"""What is tuned: a problem's solution for an architecture, rendered and graded."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions, Job, PhasesOnly
from kernelgen.grading.supervisor.lane import Lane
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import UNKNOWN_TIME, Verdict
from kernelgen.problem.record import Backend, Problem, device_of
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.schedule_table import changed_numbers, schedule_for
from kernelgen.rendering.solution import render
from kernelgen.tuning.record import Result

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
    with scratch_folder() as scratch, Lane(scratch) as lane:

        def graded(text: str, phase: Phase) -> Result:
            job = Job(path=path, data=text.encode(), options=options)
            return result_of(lane.grade_one(job, next(numbers), PhasesOnly(phase)))

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
