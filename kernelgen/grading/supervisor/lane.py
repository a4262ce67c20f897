"""A lane: files graded one after another, with one fork server for all of them.

Several lanes may be open in one process, each used by a thread of its own; `crew` does that. They
share nothing but the lock that keeps the others out while a file is timed.
"""

import contextlib
import threading
from pathlib import Path

from kernelgen.grading.options import Phase
from kernelgen.grading.queue.job import Job, LaneStopped, versions
from kernelgen.grading.supervisor.file_grading import FileGrading
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.timing_lock import TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Verdict
from kernelgen.grading.wire.forking import CANDIDATE_MODULES, COMPILER_MODULES, USUAL_MODULES


def open_oracles(scratch: Path, *, compiles: bool) -> Oracles:
    """Return oracles for one lane or several, in a new folder below `scratch`.

    Raises:
        KernelgenFault: their fork server cannot be started.
    """
    folder = scratch / "oracles"
    folder.mkdir()
    return Oracles(folder, TimingLock(), COMPILER_MODULES if compiles else USUAL_MODULES)


class Lane(contextlib.AbstractContextManager["Lane"]):
    """A fork server for candidates, and a new one where a candidate has ended it.

    The server takes its environment and its cores from the thread that makes the lane. On leaving
    the context, everything that was started is dead.

    Args:
        scratch: an empty folder, the lane's own.
        oracles: shared with other lanes.

    Attributes:
        environment: facts about the versions and, once a device was used, about it.

    Raises:
        KernelgenFault: the fork server cannot be started.
    """

    def __init__(self, scratch: Path, oracles: Oracles) -> None:
        self._scratch, self._oracles = scratch, oracles
        self._folder = scratch / "start"
        self._folder.mkdir()
        self._stopped = threading.Event()
        self._changing = threading.Lock()
        self._at_work: threading.Event | None = None
        self._server = ForkServer(self._folder, CANDIDATE_MODULES)
        self.environment = versions()

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def grade_one(self, job: Job, number: int, phase: Phase, *, stop: threading.Event) -> Verdict:
        """Grade a file.

        `number` is one that no other file of this lane has; `phase` is told of the phases, in the
        calling thread.

        Raises:
            LaneStopped: by `stop`, or by `cancel` for this file.
        """
        with self._changing:
            self._at_work = stop
            if self._stopped.is_set():
                stop.set()
        one = FileGrading(job, number, phase, stop)
        try:
            verdict = one.verdict(self._present, self._oracles, self._scratch)
        finally:
            with self._changing:
                self._at_work = None
        if stop.is_set():
            # Its complaint may be our own doing. The server may be about to end: the next file gets
            # another.
            self._server.close()
            raise LaneStopped
        self.environment |= one.environment
        return verdict

    def cancel(self, stop: threading.Event) -> None:
        """End the file that was given this event, from any thread; the lane goes on."""
        stop.set()
        with self._changing:
            if self._at_work is stop:
                self._server.stop()

    def stop(self) -> None:
        """End what runs, from any thread: `grade_one` raises LaneStopped, now and from now on."""
        self._stopped.set()
        with self._changing:
            if self._at_work is not None:
                self._at_work.set()
        self._server.stop()

    def _present(self) -> ForkServer:
        """Return a server that runs."""
        if not self._server.running:
            self._server.close()
            self._server = ForkServer(self._folder, CANDIDATE_MODULES)
        # Last: whoever stops this either ended the server that is returned, or is seen here.
        if self._at_work is None or self._at_work.is_set():
            raise LaneStopped
        return self._server
