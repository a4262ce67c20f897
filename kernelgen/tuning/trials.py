"""Schedules as trials: each rendered, graded and told of, and none of them twice."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions, PhasesOnly
from kernelgen.grading.supervisor.lane import Lane
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import Verdict
from kernelgen.problem.record import Problem
from kernelgen.rendering.context import Backend
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.schedule_table import changed_numbers, numbers_of, schedule_for
from kernelgen.rendering.solution import device_of, render
from kernelgen.tuning.record import Result, Trial

Phase = Callable[[str], None]
Grade = Callable[[str, Phase], Result]
"""Grades the text of a solution, and tells of its phases."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is tuned: a problem's solution for an architecture."""

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


class Watcher(Protocol):
    """Told what is going on."""

    def trying(self, what: str) -> None:
        """A schedule is graded, in words such as `threads=256`."""

    def phase(self, text: str) -> None:
        """Its grading entered a phase."""

    def tried(self, result: Result) -> None:
        """It has a result."""


class Trials:
    """Grades schedules of a target and keeps what came out.

    Args:
        target: what is tuned.
        grade: grades a text.
        watcher: told of it.
    """

    def __init__(self, target: Target, grade: Grade, watcher: Watcher) -> None:
        self._target, self._grade, self._watcher = target, grade, watcher
        self._seen: set[str] = set()
        self.done: list[Trial] = []

    def measure(self, schedule: Schedule, what: str) -> Result | None:
        """Grade a schedule.

        Returns:
            None if it cannot be rendered, or to nothing but what was graded before: a template
            need not use every number.
        """
        try:
            text = self._target.text(schedule)
        except UserError:
            return None
        code = _without_header(text)
        if code in self._seen:
            return None
        self._seen.add(code)
        began = time.monotonic()
        result = self.grade(text, what)
        trial = Trial(
            schedule=numbers_of(schedule), result=result, seconds=time.monotonic() - began
        )
        self.done.append(trial)
        return result

    def repeat(self, schedule: Schedule, what: str) -> Result:
        """Grade a schedule that was graded before once more."""
        return self.grade(self._target.text(schedule), what)

    def grade(self, text: str, what: str) -> Result:
        """Grade a text and tell of it."""
        self._watcher.trying(what)
        result = self._grade(text, self._watcher.phase)
        self._watcher.tried(result)
        return result


def _without_header(text: str) -> str:
    """Return a solution without the comment at its top, which names the schedule."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if not line.startswith("#")), 0)
    return "\n".join(lines[first:])


@contextmanager
def grader(target: Target) -> Iterator[Grade]:
    """Give what grades a text with the grader's own processes and clock, until the block is left.

    All texts share what the processes are started from, and so what that has imported.

    Args:
        target: whose problem the texts solve.

    Raises:
        KernelgenFault: the processes cannot be started.
    """
    options = GradeOptions(problem=target.problem, device=device_of(target.backend), baselines=())
    numbers = itertools.count()
    with scratch_folder() as folder, scratch_folder() as scratch, Lane(scratch) as lane:
        path = folder / f"{target.problem.name}.py"

        def graded(text: str, phase: Phase) -> Result:
            path.write_text(text, encoding="utf-8")
            return result_of(lane.grade_one(path, options, next(numbers), PhasesOnly(phase)))

        yield graded


def result_of(verdict: Verdict) -> Result:
    """Return what a verdict says of a schedule."""
    timing = verdict.timing
    return Result(
        status=verdict.status,
        owner=verdict.owner,
        reason=verdict.reason,
        time_ms=None if timing is None else timing.candidate_ms,
        quartiles_ms=None if timing is None else timing.subjects[CANDIDATE].quartiles_ms,
        device=verdict.device,
    )
