"""A file to be graded: as it is asked for (`Job`), and on its way through a crew (`Entry`)."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.grading.options import GradeOptions, Observer, Phase
from kernelgen.grading.queue.identity import key_of
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem
from kernelgen.problem.text import encodable
from kernelgen.solution.file import SolutionFile, read_solution


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be graded.

    Attributes:
        path: of the file, or a name for it.
        data: its content; None reads the file when its turn comes.
        no_problem: why it cannot be graded, which is said where it would be; "" if it can.
        alone: nothing else may be graded meanwhile.
        labels: name -> value, which its verdict carries.
    """

    path: Path
    options: GradeOptions
    data: bytes | None = None
    no_problem: str = ""
    alone: bool = False
    labels: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the path as text, which records can carry."""
        return encodable(str(self.path))

    def read(self) -> SolutionFile:
        """Return the file; raises UserError as `read_solution` does."""
        return read_solution(self.path, self.data)

    def problem_of(self, solution: SolutionFile) -> Problem:
        """Return the problem that is asked for, else that of the file's header, else of its name.

        Raises:
            UserError: there is none, or it is wrong.
        """
        if self.no_problem:
            raise UserError(self.no_problem)
        try:
            return self.options.problem or load_problem(solution.problem_name, solution.path)
        except ProblemError:
            raise
        except UserError as error:
            raise UserError(
                f"{solution.path}: which problem it solves is unknown: {error}.\n"
                "Name it with --problem NAME or --reference FILE.py, by a YAML file of its name "
                "beside it, or in the file by a line `# problem: NAME` near its top"
            ) from error

    def fault(self, reason: str) -> Verdict:
        """Return the verdict where it could not be graded, by nobody's fault but the grader's."""
        problem = self.options.problem
        return Verdict(
            problem=problem.name if problem else "",
            solution=self.name,
            solution_sha256="",
            status=Status.GRADER_ERROR,
            owner=Owner.GRADER,
            reason=reason,
        )


class LaneStopped(Exception):  # noqa: N818 (an ending, not an error)
    """The lane was stopped: there is no verdict, and everything that it had started is ending."""


class LaneLost(Exception):  # noqa: N818 (nobody's mistake)
    """The lane has lost its means to grade: its file is graded elsewhere, or in another lane."""


class AnyLane(Protocol):
    """A grader of one file after another: a `Lane` of this machine, or one elsewhere."""

    environment: dict[str, Any]

    def grade_one(self, job: Job, number: int, phase: Phase, *, stop: threading.Event) -> Verdict:
        """Grade a file; raises LaneStopped as `Lane.grade_one` does, and LaneLost."""

    def cancel(self, stop: threading.Event) -> None:
        """End the file that was given this event."""

    def stop(self) -> None:
        """End what runs."""


class Entry(msgspec.Struct, kw_only=True, eq=False):
    """A job in the queue or at work.

    Attributes:
        observer: told of its phases and its verdict, by `index`.
        begins: called before each time that it is graded.
        number: that no other entry of its queue has.
        tried: GPUs on which it has failed by the grader's fault.
        unfit: those of them that fail without a candidate as well.
        fault: the verdict that it got there last.
        alone: nothing else may be graded on its GPU meanwhile.
        losses: lanes that were lost while they had it.
        lane: that has it.
        key: of its verdict in the journal; "" where the file cannot be read, or has no problem.
        sha256: of the content that the key is of.
        same: entries of the same key, which wait for this one's verdict.
        stop: set to end it.
    """

    job: Job
    observer: Observer | None = None
    index: int = 0
    begins: Callable[[], None] = lambda: None
    number: int = 0
    key: str = ""
    sha256: str = ""
    future: Future[Verdict] = msgspec.field(default_factory=Future)
    tried: set[str] = set()
    unfit: set[str] = set()
    fault: Verdict | None = None
    lane: AnyLane | None = None
    alone: bool = False
    losses: int = 0
    same: list["Entry"] = []
    stop: threading.Event = msgspec.field(default_factory=threading.Event)

    def find_key(self, devices: Sequence[str] | None) -> None:
        """Read the file and find its problem."""
        with contextlib.suppress(UserError):
            solution = self.job.read()
            problem = self.job.problem_of(solution)
            self.sha256 = solution.sha256
            self.key = key_of(solution, problem, self.job.options, devices)
