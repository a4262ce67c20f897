"""Grading from asyncio: many candidates at once, each awaited by whoever asked."""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions, compiles_baselines
from kernelgen.grading.queue.job import Job, LaneStopped
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import usual_jobs
from kernelgen.grading.verdict import Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

_LEFT = "the grader was left before the verdict"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be graded, given as text.

    Attributes:
        text: its Python, or Markdown around it.
        problem: to grade it on; None finds it from the text's header or the name.
        name: of the file, for messages.
    """

    text: str
    problem: Problem | None = None
    name: str = "candidate.py"


Asked = Path | str | Candidate
"""A candidate in a file or as text."""


class Grader(contextlib.AbstractAsyncContextManager["Grader"]):
    """Grades candidates for an asyncio program; on leaving it, everything that was started is gone.

    Candidates wait in the order in which they came. Cancelling whoever awaits a verdict takes the
    candidate back, and ends what runs for it.

        async with kernelgen.Grader(journal="run.journal") as grader:
            verdict = await grader.grade_text(source, "groupnorm")

    Args:
        options: for all candidates that come without their own.
        jobs: how many to build and check at once on a GPU; None is what suits the machine.
        gpus: to be used, as CUDA_VISIBLE_DEVICES names them; else the first one.
        journal: a file that keeps verdicts: what is in it is not graded again. An existing one is
            continued.
        ahead: how many candidates to have in work and waiting at once; who asks for more waits,
            without the grader's taking note. None is twice what is graded at once.
        hands: what grades, in place of this machine: `kernelgen.service.cluster.Cluster`, which was
            given its own `jobs` and `journal`.

    Raises:
        UserError: `hands` came with what it was to be given itself; on entering, the journal cannot
            be used.
    """

    def __init__(  # noqa: PLR0913 (what of a grader may be chosen)
        self,
        options: GradeOptions | None = None,
        *,
        jobs: int | None = None,
        gpus: Sequence[str] = (),
        journal: Path | str | None = None,
        ahead: int | None = None,
        hands: Crew | None = None,
    ) -> None:
        if hands is not None and (jobs or gpus or journal):
            raise UserError("Grader: hands take jobs, gpus and journal themselves; leave them out")
        self._options = options or GradeOptions()
        self._lanes = (jobs or usual_jobs(self._options, max(1, len(gpus)))) * max(1, len(gpus))
        self._gpus, self._path, self._hands = gpus, journal, hands
        self._ahead = ahead or 2 * (self._lanes if hands is None else hands.lanes)
        self._room = asyncio.Semaphore(self._ahead)
        self._held = contextlib.ExitStack()
        self._open: Crew

    async def __aenter__(self) -> "Grader":  # noqa: PYI034 (Self is Python 3.11's)
        await asyncio.to_thread(self._enter)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._held.close)

    def _enter(self) -> None:
        hands = self._hands
        if hands is None:
            journal = None
            if self._path is not None:
                journal = self._held.enter_context(Journal(Path(self._path)))
            hands = Crew(
                self._lanes,
                compiles=compiles_baselines(self._options),
                gpus=self._gpus,
                journal=journal,
            )
        self._held.enter_context(hands)
        self._open = hands

    @property
    def environment(self) -> dict[str, Any]:
        """Facts about the versions and, once a device was used, about it."""
        return self._open.environment

    async def grade_text(
        self,
        source: str,
        problem: Problem | str | None = None,
        *,
        name: str = "candidate.py",
        options: GradeOptions | None = None,
    ) -> Verdict:
        """Return the verdict on a candidate's text.

        Args:
            source: its Python, or Markdown around it.
            problem: a problem, or the name or file of one; None finds it from the text's header.
            name: of the file, for messages.
            options: in place of the grader's.

        Raises:
            UserError: there is no such problem.
            KernelgenFault: the grader's processes cannot be started, or it was left meanwhile.
        """
        if isinstance(problem, str):
            problem = await asyncio.to_thread(load_problem, problem)
        return await self._grade(Candidate(text=source, problem=problem, name=name), options)

    async def grade(
        self,
        candidates: Iterable[Asked] | AsyncIterable[Asked],
        *,
        options: GradeOptions | None = None,
    ) -> AsyncGenerator[tuple[Asked, Verdict]]:
        """Give each candidate with its verdict, as they are made.

        Leaving the loop takes back what is not done.

        Args:
            candidates: paths of files, or texts. They are taken as there is room, so that a
                generator of any length may be given.
            options: in place of the grader's.
        """
        source = _each(candidates)
        at_work: dict[asyncio.Task[Verdict], Asked] = {}
        exhausted = False
        try:
            while at_work or not exhausted:
                while not exhausted and len(at_work) < self._ahead:
                    one = await anext(source, None)
                    if exhausted := one is None:
                        break
                    at_work[asyncio.create_task(self._grade(one, options))] = one
                if at_work:
                    done, _ = await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        yield at_work.pop(task), task.result()
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

    async def _grade(self, candidate: Asked, options: GradeOptions | None) -> Verdict:
        options = options or self._options
        if isinstance(candidate, Candidate):
            if candidate.problem is not None:
                options = msgspec.structs.replace(options, problem=candidate.problem)
            # Bytes that are no text, such as a lone surrogate, are refused where files are read.
            data = candidate.text.encode(errors="surrogatepass")
            return await self.grade_job(Job(path=Path(candidate.name), data=data, options=options))
        return await self.grade_job(Job(path=Path(candidate), options=options))

    async def grade_job(self, job: Job, begins: Callable[[], None] = lambda: None) -> Verdict:
        """Return the verdict on a job; `begins` is called in other threads, before each try.

        Raises:
            KernelgenFault: the grader's processes cannot be started, or it was left meanwhile.
        """
        async with self._room:
            # In a thread: it reads the file, and looks for its verdict in the journal.
            future = await asyncio.to_thread(self._open.submit, job, begins=begins)
            verdict = asyncio.wrap_future(future)
            try:
                return await asyncio.shield(verdict)
            except asyncio.CancelledError:
                if future.cancelled():
                    raise KernelgenFault(_LEFT) from None
                await asyncio.to_thread(self._open.cancel, future)
                # Until nothing of it runs.
                await asyncio.wait([verdict])
                raise
            except LaneStopped as stopped:
                raise KernelgenFault(_LEFT) from stopped
            finally:
                # Else asyncio says that nobody has looked at it.
                if verdict.done() and not verdict.cancelled():
                    verdict.exception()


async def _each(
    candidates: Iterable[Asked] | AsyncIterable[Asked],
) -> AsyncIterator[Asked]:
    if isinstance(candidates, AsyncIterable):
        async for one in candidates:
            yield one
    else:
        for one in candidates:
            yield one
