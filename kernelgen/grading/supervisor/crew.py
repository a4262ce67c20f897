"""A crew: threads that take files from one queue, each with a lane, and so processes, of its own.

Files are built and checked at once; each is timed while nothing else runs (`timing_lock`).
"""

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions, Observer, PhasesOnly, compiles_baselines
from kernelgen.grading.supervisor.lane import Lane, LaneStopped, open_oracles
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.verdict import Verdict

# With fewer cores than this, a lane gets no cores of its own: a candidate's second thread would
# find none.
_LEAST_CORES = 2


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be graded.

    Attributes:
        alone: nothing else may be graded meanwhile.
    """

    path: Path
    options: GradeOptions
    alone: bool = False


class Crew:
    """Grades files, several at once.

    Args:
        observer: told of phases and verdicts, by one thread at a time but not by the caller's. The
            thread that grades a file waits until it has been told of it.
        share_cores: give each lane cores of its own, where there are enough; else all have all, so
            that a time is of as many threads as that of a file that is graded by itself.
        gpus: the lanes take these in turn; else each file's options tell.

    Attributes:
        verdicts: of the files that are done, by their position among the jobs.
        environment: facts about the versions and, once a device was used, about it.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        lanes: int,
        observer: Observer,
        *,
        share_cores: bool = False,
        gpus: Sequence[str] = (),
    ) -> None:
        self._jobs, self._observer, self._gpus = jobs, observer, gpus
        self._waiting = deque(range(len(jobs)))
        self._compiles = any(compiles_baselines(job.options) for job in jobs)
        cores = sorted(os.sched_getaffinity(0))
        count = min(lanes, len(jobs))
        self._cores = shares_of_cores(cores, count) if share_cores else [tuple(cores)] * count
        self._telling = threading.Lock()
        self._stopping = threading.Event()
        self._oracles: Oracles
        self._lanes: list[Lane] = []
        self._ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.verdicts: dict[int, Verdict] = {}
        self.environment: dict[str, Any] = {}

    def run(self) -> None:
        """Grade all of them; on leaving, also by ^C, everything that was started is gone.

        A lane that cannot be opened leaves its files to the others.

        Raises:
            KernelgenFault: no lane can be opened.
        """
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"kernelgen-lane-{number}")
            for number in range(len(self._cores))
        ]
        with (
            scratch_folder() as scratch,
            contextlib.closing(open_oracles(scratch, compiles=self._compiles)) as made,
        ):
            self._oracles = made
            self._run(threads)

    def _run(self, threads: list[threading.Thread]) -> None:
        unopened: list[Exception] = []
        try:
            for thread in threads:
                thread.start()
            for _ in threads:
                error = self._ended.get()
                if isinstance(error, KernelgenFault):
                    unopened.append(error)
                elif error is not None:
                    raise error
            if unopened and len(self.verdicts) < len(self._jobs):
                raise unopened[0]
        finally:
            self._stopping.set()
            self._oracles.stop()
            for lane in list(self._lanes):
                lane.stop()
            for thread in threads:
                # ^C may have come before it was started.
                if thread.ident is not None:
                    thread.join()

    def _work(self, number: int) -> None:
        """Be one lane, in a thread of its own."""
        error: Exception | None = None
        try:
            # On Linux this is the calling thread's own affinity, which what it starts inherits.
            os.sched_setaffinity(0, self._cores[number])
            with (
                contextlib.suppress(LaneStopped),
                scratch_folder() as scratch,
                Lane(scratch, oracles=self._oracles) as lane,
            ):
                self._lanes.append(lane)
                # After that: `run` stops this lane, or it is seen here that it is to stop.
                while not self._stopping.is_set() and (index := self._next()) is not None:
                    self._grade(lane, index, number)
        except Exception as raised:  # noqa: BLE001 (the outermost frame of a thread)
            error = raised
        self._ended.put(error)

    def _next(self) -> int | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # another lane took the last one
            return None

    def _grade(self, lane: Lane, index: int, number: int) -> None:
        job = self._jobs[index]
        options = job.options
        if self._gpus and options.gpu is None:
            gpu = self._gpus[number % len(self._gpus)]
            options = msgspec.structs.replace(options, gpu=gpu)
        phases = PhasesOnly(lambda text: self._tell_phase(index, text))
        verdict = lane.grade_one(job.path, options, index, phases, alone=job.alone)
        with self._telling:
            self.environment |= lane.environment
            self.verdicts[index] = verdict
            self._observer.finished(index, verdict)

    def _tell_phase(self, index: int, text: str) -> None:
        with self._telling:
            self._observer.phase(index, text)


def shares_of_cores(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Return the cores of each lane, none of them twice; or all for each where they are too few."""
    if len(cores) < lanes * _LEAST_CORES:
        return [tuple(cores)] * lanes
    return [tuple(cores[first::lanes]) for first in range(lanes)]
