"""A file on its way through a crew: waiting, at work in a lane, or back in the queue."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from kernelgen.errors import UserError
from kernelgen.grading.identity import key_of
from kernelgen.grading.options import Job, Observer
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.solution.file import read_solution


class AnyLane(Protocol):
    """What grades one file after another: a `Lane` of this machine, or one elsewhere."""

    environment: dict[str, Any]

    def grade_one(
        self, job: Job, index: int, observer: Observer, *, stop: threading.Event | None = None
    ) -> Verdict:
        """Grade a file; raises LaneStopped as `Lane.grade_one` does, and LaneLost."""

    def cancel(self, stop: threading.Event) -> None:
        """End the file that was given this event."""

    def stop(self) -> None:
        """End what runs."""


class Queued:
    """A job in the queue or at work.

    Attributes:
        tried: GPUs on which it has failed by the grader's fault.
        unfit: those of them that fail without a candidate as well.
        begins: called before each time that it is graded.
        fault: the verdict that it got there last.
        alone: nothing else may be graded on its GPU meanwhile.
        losses: lanes that were lost while they had it.
        lane: that has it.
        key: of its verdict in the journal; "" where the file cannot be read, or has no problem.
        sha256: of the content that the key is of.
        same: tasks of the same key, which wait for this one's verdict.
    """

    def __init__(self, job: Job, observer: Observer, index: int) -> None:
        self.job, self.observer, self.index = job, observer, index
        self.number, self.key, self.sha256 = 0, "", ""
        self.future: Future[Verdict] = Future()
        self.tried: set[str] = set()
        self.unfit: set[str] = set()
        self.begins: Callable[[], None] = lambda: None
        self.fault: Verdict | None = None
        self.lane: AnyLane | None = None
        self.alone = job.alone
        self.losses = 0
        self.same: list[Queued] = []
        self.stop = threading.Event()

    def find_key(self, devices: Sequence[str] | None) -> None:
        """Read the file and find its problem."""
        job = self.job
        if job.no_problem:
            return
        with contextlib.suppress(UserError):
            solution = read_solution(job.path, job.data)
            problem = job.options.problem or load_problem(solution.problem_name)
            self.sha256 = solution.sha256
            self.key = key_of(solution, problem, job.options, devices)


def fault_of(job: Job, reason: str) -> Verdict:
    """Return the verdict on a file that could not be graded, by nobody's fault but ours."""
    problem = job.options.problem
    return Verdict(
        problem=problem.name if problem else "",
        solution=job.name,
        solution_sha256="",
        status=Status.GRADER_ERROR,
        owner=Owner.GRADER,
        reason=reason,
    )
