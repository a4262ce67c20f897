"""A crew: threads that take files from one queue, each with a lane, and so processes, of its own.

Files are built and checked at once; on each GPU one is timed while nothing else runs there
(`timing_lock`).
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

import msgspec

from kernelgen.grading.options import Observer
from kernelgen.grading.queue.job import AnyLane, Entry, Job, LaneLost, LaneStopped
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.queue.queue import Queue
from kernelgen.grading.supervisor.lane import Lane, open_oracles
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.timing_lock import Displaced
from kernelgen.grading.verdict import Verdict
from kernelgen.scratch import temporary_folder

# With fewer cores than this, a lane gets no cores of its own: a candidate's second thread would
# find none.
_LEAST_CORES = 2
# A signal may reach another thread, and then wakes no one who waits without a time.
_POLL_S = 0.5


class Crew(contextlib.AbstractContextManager["Crew"]):
    """Grades files, several at once; on leaving, also by ^C, everything that was started is gone.

    A lane that cannot be opened leaves its files to the others. `Queue` says which file comes
    next, which is graded again, and who waits for which verdict.

    Args:
        lanes: how many files to grade at once.
        compiles: whether torch.compile is likely to be timed.
        share_cores: give each lane cores of its own, where there are enough; else all have all, so
            that a time is of as many threads as that of a file that is graded by itself.
        gpus: the lanes take these in turn; else each file's options tell.
        journal: has verdicts that are not made again, and gets the others as they are made.

    Attributes:
        lanes: how many files are graded at once.
        devices: that verdicts depend on, as `job.devices`; None are this machine's.
    """

    def __init__(
        self,
        lanes: int,
        *,
        compiles: bool = False,
        share_cores: bool = False,
        gpus: Sequence[str] = (),
        journal: Journal | None = None,
    ) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._cores = shares_of_cores(cores, lanes) if share_cores else [tuple(cores)] * lanes
        self._gpus = tuple(gpus)
        self._compiles = compiles
        self._starting = threading.Lock()
        self._queue = Queue(journal)
        self._lanes: list[AnyLane] = []
        self._oracles: dict[str, Oracles] = {}
        self._threads: list[threading.Thread] = []
        self._held = contextlib.ExitStack()
        self.lanes = lanes
        self.devices: Sequence[str] | None = None

    def __exit__(self, *_: object) -> None:
        with self._starting:
            self._queue.close()
        # Lanes first: what they find once the oracles are gone is no verdict.
        for lane in list(self._lanes):
            lane.stop()
        for oracles in self._oracles.values():
            oracles.stop()
        for thread in self._threads:
            # ^C may have come before it was started.
            if thread.ident is not None:
                thread.join()
        self._held.close()

    @property
    def environment(self) -> dict[str, Any]:
        """Facts about the versions and, once a device was used, about it."""
        return self._queue.environment

    def submit(
        self,
        job: Job,
        observer: Observer | None = None,
        index: int = 0,
        begins: Callable[[], None] = lambda: None,
    ) -> Future[Verdict]:
        """Have a file graded; any thread may call this. The first one starts the lanes.

        The future raises KernelgenFault if no lane can be opened, and is cancelled or raises
        LaneStopped if the crew is left before its verdict.

        Args:
            job: the file.
            observer: told of its phases and its verdict, by one thread at a time: the one that
                grades it, which waits meanwhile, or the caller's if the journal has its verdict.
                What it raises is the future's.
            index: by which the observer knows the file.
            begins: called, by the thread that grades, each time before that.

        Raises:
            KernelgenFault: what the lanes share cannot be started.
        """
        entry = Entry(job=job, observer=observer, index=index, begins=begins, alone=job.alone)
        if not self._queue.tell_known(entry, self.devices):
            self.start()
            self._queue.add(entry)
        return entry.future

    def cancel(self, future: Future[Verdict]) -> None:
        """Take a file back: it is not begun, or what runs for it ends; any thread may call this.

        Its future is cancelled, or raises LaneStopped soon. Others go on, also those with the same
        content.
        """
        self._queue.cancel(future)

    def start(self) -> None:
        """Start the lanes now, beside what the caller looks up before the first file for them.

        Raises:
            KernelgenFault: what the lanes share cannot be started.
        """
        with self._starting:
            if self._threads or self._queue.closed:
                return
            self._start_shared()
            for number in range(len(self._cores)):
                name = f"kernelgen-lane-{number}"
                gpu = self._gpus[number % len(self._gpus)] if self._gpus else ""
                thread = threading.Thread(target=self._work, args=(number, gpu), name=name)
                self._threads.append(thread)
                self._queue.add_lane(gpu)
                thread.start()

    def _start_shared(self) -> None:
        """Start what lanes share."""
        for gpu in dict.fromkeys(self._gpus or ("",)):
            scratch = self._held.enter_context(temporary_folder())
            oracles = open_oracles(scratch, compiles=self._compiles)
            self._oracles[gpu] = self._held.enter_context(contextlib.closing(oracles))

    @contextlib.contextmanager
    def _opened(self, number: int, gpu: str) -> Iterator[AnyLane]:
        """Be a lane, for the calling thread, which is the lane's own.

        Raises:
            KernelgenFault: it cannot be opened.
            LaneStopped: the crew is left before.
        """
        # On Linux this is the calling thread's own affinity, which what it starts inherits.
        os.sched_setaffinity(0, self._cores[number])
        with temporary_folder() as scratch, Lane(scratch, self._oracles[gpu]) as lane:
            yield lane

    def _work(self, number: int, gpu: str) -> None:
        """Be one lane, in a thread of its own, and another one after each that is lost."""
        unopened = None
        try:
            with contextlib.suppress(LaneStopped):
                lost = True
                while lost:
                    lost = self._loses_lane(number, gpu)
        except Exception as error:  # noqa: BLE001 (the outermost frame of a thread)
            unopened = error
        finally:
            self._queue.drop_lane(gpu, unopened)

    def _loses_lane(self, number: int, gpu: str) -> bool:
        """Grade in one lane; return whether that ended with its loss, not with the files."""
        with self._opened(number, gpu) as lane:
            self._lanes.append(lane)
            try:
                # After that: leaving stops this lane, or it is seen here that it is to stop.
                while (entry := self._queue.wait(gpu, lane)) is not None:
                    self._grade(lane, entry, gpu)
            except LaneLost:
                return True
            finally:
                self._lanes.remove(lane)
        return False

    def _grade(self, lane: AnyLane, entry: Entry, gpu: str) -> None:
        """Grade a file; raises LaneLost once it is back in the queue, or has its verdict."""
        job, queue = entry.job, self._queue
        if gpu and job.options.gpu is None:
            options = msgspec.structs.replace(job.options, gpu=gpu)
            job = msgspec.structs.replace(job, options=options)
        phase = functools.partial(queue.tell_phase, entry)
        try:
            with contextlib.ExitStack() as held:
                if entry.alone and not job.alone:
                    phase("again, alone: it lacked memory or time beside others")
                for key, oracles in self._oracles.items():
                    if job.alone or (entry.alone and key == gpu):
                        held.enter_context(oracles.lock.working())
                        held.enter_context(oracles.lock.alone())
                        oracles.end_idle()
                entry.begins()
                verdict = lane.grade_one(job, entry.number, phase, stop=entry.stop)
            if not queue.take_back(entry, verdict, gpu, shared=gpu in self._oracles):
                queue.finish(entry, verdict, lane.environment)
        except LaneLost as lost:
            queue.begin_again(entry, str(lost))
            raise
        except Displaced:
            entry.alone = True
            queue.begin_again(entry, "another candidate was to be timed, and the GPU was busy")
        except Exception as error:  # noqa: BLE001 (whoever waits for the file gets it)
            queue.end(entry, error)
        finally:
            queue.leave(entry, gpu)


def ended(futures: Iterable[Future[Verdict]]) -> Iterator[Future[Verdict]]:
    """Yield each future soon after it has ended, or at once where one raises; interruptible."""
    left = set(futures)
    while left:
        done, left = wait(left, _POLL_S, FIRST_EXCEPTION)
        yield from done


def shares_of_cores(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Return the cores of each lane, none of them twice; or all for each where they are too few."""
    if len(cores) < lanes * _LEAST_CORES:
        return [tuple(cores)] * lanes
    return [tuple(cores[first::lanes]) for first in range(lanes)]
