"""The questions that a service has accepted, and its answers, by the content of the question.

The same question is the same job, whoever asks it and how often. An accepted one is a file until
its verdict is in the journal, so that a service that is killed goes on with it.
"""

import asyncio
import errno
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from kernelgen.destination import write_whole
from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job, devices, key_of, release
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.verdict import Owner, Verdict
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.library import load_problem, problem_names
from kernelgen.problem.record import Problem
from kernelgen.service.grader import Grader
from kernelgen.service.questions import JobState, Offer, Request
from kernelgen.solution.file import read_solution

_NAME = Path("candidate.py")
# Verdicts that the journal does not keep: those that are the grader's own fault.
_MOST_FAULTS = 256
_MOST_TRIES = 2
_DEADLY = (
    f"taken up {_MOST_TRIES} times, and each time the service ended while this was graded, at last "
    "alone: it is not taken up again"
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs.

    Attributes:
        state: folder for what was accepted and for the verdicts; it exists.
        options: for all candidates; a request's rules come on top.
        jobs: how many candidates to grade at once on a GPU.
        gpus: to be used, as CUDA_VISIBLE_DEVICES names them.
        queue: how many questions may wait or be in work.
        body_bytes: the longest request.
        token: that clients have to send; "" asks for none.
        takes_references: whether clients may send references, which run uncontained.
        problems: files of KernelBench's, by names such as `1/19`.
    """

    state: Path
    options: GradeOptions
    jobs: int = 1
    gpus: tuple[str, ...] = ()
    queue: int = 1000
    body_bytes: int = 4 << 20
    token: str = ""
    takes_references: bool = False
    problems: dict[str, Path] = {}


class QueueFull(Exception):  # noqa: N818 (a state, not a mistake)
    """No more is taken for now."""


class _Job:
    """A question without a verdict.

    Attributes:
        accepted: done once it is on the disk; else why it is not.
        task: writes it there, and has it graded.
    """

    def __init__(self) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None]


class Desk:
    """Takes questions, has them graded, and knows the answers.

    Args:
        grader: grades; its context is the caller's, as is the journal's.
        journal: keeps the verdicts; the grader does not write it.
        settings: of the service; questions are kept in its folder once they are accepted.
        finished: told of each verdict, and of the seconds from its acceptance on.
    """

    def __init__(
        self,
        grader: Grader,
        journal: Journal,
        settings: Settings,
        finished: Callable[[Verdict, float], None],
    ) -> None:
        self._grader, self._journal, self._settings = grader, journal, settings
        self._finished = finished
        self._folder = settings.state / "accepted"
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._jobs: dict[str, _Job] = {}
        self._faults: OrderedDict[str, Verdict] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many questions have no verdict yet."""
        return len(self._jobs)

    def offer(self) -> Offer:
        """Return what can be asked, and on what it is graded."""
        own = {name: load_problem(name).summary for name in problem_names()}
        names = {name: file.stem for name, file in self._settings.problems.items()}
        return Offer(
            problems=own | names,
            release=release(),
            devices=devices(),
            environment=self._grader.environment,
        )

    def jobs(self) -> list[JobState]:
        """Return the questions that have no verdict yet, in the order in which they came."""
        return [JobState(id=number, state="waiting") for number in self._jobs]

    async def resume(self) -> list[str]:
        """Take up what an earlier service had accepted; return what is wrong with the rest."""
        refused: list[str] = []
        for file in sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime):
            try:
                request = msgspec.json.decode(file.read_bytes(), type=Request)
                number = await self._take(request, resumed=True)
            except (msgspec.DecodeError, UserError) as error:
                refused.append(f"{file}: {error}; remove it, or mend that and start again")
                continue
            # It was answered already, or has another number under this release.
            if number != file.stem or number not in self._jobs:
                file.unlink(missing_ok=True)
        return refused

    async def close(self) -> None:
        """Take back what is waiting or in work; the files stay for the next service."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, request: Request) -> JobState:
        """Take a question, or find it; once this returns, a restart does not lose it.

        Raises:
            UserError: it cannot be graded as it is.
            QueueFull: no more is taken now.
            OSError: the disk is full.
        """
        return self._state(await self._take(request))

    async def find(self, number: str, wait_s: float = 0.0) -> JobState | None:
        """Return a job, after its verdict or this time; None if there is none of this number."""
        if wait_s and (job := self._jobs.get(number)) is not None:
            await asyncio.wait([job.task], timeout=wait_s)
        state = self._state(number)
        return state if state.verdict is not None or number in self._jobs else None

    def _state(self, number: str) -> JobState:
        verdict = self._journal.find(number) or self._faults.get(number)
        if verdict is None or number in self._jobs:
            return JobState(id=number, state="waiting")
        return JobState(id=number, state="done", verdict=verdict)

    async def _take(self, request: Request, *, resumed: bool = False) -> str:
        number, options = await asyncio.to_thread(self._read, request)
        if self._journal.find(number) is not None:
            return number
        # Nothing is awaited between the look at the jobs and the new one: two of the same are one.
        job = self._jobs.get(number)
        if job is None:
            if len(self._jobs) >= self._settings.queue and not resumed:
                raise QueueFull
            self._faults.pop(number, None)
            job = self._jobs[number] = _Job()
            grade = self._grade(number, job, request, options)
            job.task = asyncio.create_task(grade)
        await asyncio.shield(job.accepted)
        return number

    async def _grade(
        self, number: str, job: "_Job", request: Request, options: GradeOptions
    ) -> None:
        file, begun = self._folder / f"{number}.json", time.monotonic()
        try:
            try:
                await asyncio.to_thread(write_whole, msgspec.json.encode(request), file)
            except (OSError, UserError) as error:
                # Else whoever asked would wait for ever. It is nothing that a client could mend.
                unkept = OSError(errno.EACCES, "its folder cannot be written to")
                job.accepted.set_exception(error if isinstance(error, OSError) else unkept)
                return
            job.accepted.set_result(None)
            verdict = await self._verdict(number, request, options)
            await asyncio.to_thread(self._keep, number, verdict)
            file.unlink(missing_ok=True)
        finally:
            del self._jobs[number]
        self._finished(verdict, time.monotonic() - begun)

    async def _verdict(self, number: str, request: Request, options: GradeOptions) -> Verdict:
        """Have it graded; what an earlier service had not outlived, by itself, and but once."""
        before = self._journal.begun(number)
        job = Job(
            path=_NAME,
            data=request.candidate.encode(),
            options=options,
            alone=before > 0,
        )
        if before >= _MOST_TRIES:
            return job.fault(_DEADLY)
        try:
            return await self._grader.grade_job(
                job, lambda: self._journal.note_begun(number, before + 1)
            )
        except KernelgenFault as fault:
            return job.fault(str(fault))
        finally:
            # It has a verdict or was taken back: either way the service has outlived it.
            if self._journal.begun(number) > before:
                await asyncio.to_thread(self._journal.note_begun, number, before)

    def _keep(self, number: str, verdict: Verdict) -> None:
        if verdict.owner is Owner.GRADER:
            self._faults[number] = verdict
            while len(self._faults) > _MOST_FAULTS:
                self._faults.popitem(last=False)
        else:
            self._journal.add(number, verdict, {})

    def _read(self, request: Request) -> tuple[str, GradeOptions]:
        """Return a question's number, and its options with the problem; nobody waits for this."""
        problem, options = self._read_rules(request)
        number = key_of(read_solution(_NAME, request.candidate.encode()), problem, options)
        return number, msgspec.structs.replace(options, problem=problem)

    def _read_rules(self, request: Request) -> tuple[Problem, GradeOptions]:
        options = request.rules.applied_to(self._settings.options)
        if (request.problem is None) == (request.reference is None):
            raise UserError("expected one of `problem`, a name, and `reference`, a file's text")
        if request.problem is not None:
            file = self._settings.problems.get(request.problem)
            if file is None and request.problem not in problem_names():
                message = "no problem is called so; GET /problems lists those that are"
                raise UserError(f"problem {request.problem!r}: {message}")
            return load_problem(file or request.problem), options
        if not self._settings.takes_references:
            message = "references are not taken: they run outside containment"
            raise UserError(f"{message}; start the service with --allow-references")
        assert request.reference is not None
        return read_kernelbench_problem(Path("reference.py"), request.reference.encode()), options
