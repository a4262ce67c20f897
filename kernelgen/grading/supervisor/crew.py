"""A crew: threads that take files from one queue, each with a lane, and so processes, of its own.

Files are built and checked at once; on each GPU one is timed while nothing else runs there
(`timing_lock`).
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

import msgspec

from kernelgen.grading.awaited import Awaited
from kernelgen.grading.file_queue import FileQueue
from kernelgen.grading.journal import Journal
from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import Job, Observer, PhasesOnly
from kernelgen.grading.queued import AnyLane, Queued, fault_of
from kernelgen.grading.supervisor.lane import Lane, LaneLost, LaneStopped, open_oracles
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.timing_lock import Displaced, LockStopped
from kernelgen.grading.verdict import Verdict

# With fewer cores than this, a lane gets no cores of its own: a candidate's second thread would
# find none.
_LEAST_CORES = 2
# A signal may reach another thread, and then wakes no one who waits without a time.
_POLL_S = 0.5


class Crew(contextlib.AbstractContextManager["Crew"]):
    """Grades files, several at once; on leaving, also by ^C, everything that was started is gone.

    A lane that cannot be opened leaves its files to the others. `FileQueue` says which file comes
    next, and which is graded again; `Awaited`, who waits for which verdict.

    Args:
        lanes: how many files to grade at once.
        compiles: whether torch.compile is likely to be timed.
        share_cores: give each lane cores of its own, where there are enough; else all have all, so
            that a time is of as many threads as that of a file that is graded by itself.
        gpus: the lanes take these in turn; else each file's options tell.
        journal: has verdicts that are not made again, and gets the others as they are made.

    Attributes:
        lanes: how many files are graded at once.
        devices: that verdicts depend on, as `identity.devices`; None are this machine's.
        environment: facts about the versions and, once a device was used, about it.
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
        self._change = threading.Condition()
        self._files = FileQueue()
        self._awaited = Awaited(self._change, journal)
        self._numbers = 0
        self._stopping = False
        self._lanes: list[AnyLane] = []
        self._unopened: Exception | None = None
        self._oracles: dict[str, Oracles] = {}
        self._threads: list[threading.Thread] = []
        self._held = contextlib.ExitStack()
        self.environment: dict[str, Any] = {} if journal is None else dict(journal.environment)
        self.lanes = lanes
        self.devices: Sequence[str] | None = None

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._stopping = True
            waiting = self._files.clear()
            self._change.notify_all()
        # Lanes first: what they find once the oracles are gone is no verdict.
        for lane in list(self._lanes):
            lane.stop()
        for oracles in self._oracles.values():
            oracles.stop()
        for task in waiting:
            self._end(task, None)
        for thread in self._threads:
            # ^C may have come before it was started.
            if thread.ident is not None:
                thread.join()
        self._held.close()

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
        task = Queued(job, observer or PhasesOnly(lambda _: None), index)
        task.begins = begins
        if not self._awaited.tell_known(task, self.devices):
            self._queue(task)
        return task.future

    def start(self) -> None:
        """Start the lanes now, beside what the caller looks up before the first file for them.

        Raises:
            KernelgenFault: what the lanes share cannot be started.
        """
        with self._change:
            if not self._threads and not self._stopping:
                self._start()

    def _queue(self, task: Queued) -> None:
        with self._change:
            self.start()
            if self._stopping:
                task.future.cancel()
            elif not self._files.lanes_for(task):
                task.future.set_exception(self._unopened or LaneStopped())
            elif self._awaited.add(task):
                self._numbers += 1
                task.number = self._numbers
                self._files.append(task)
                self._change.notify_all()

    def _start(self) -> None:
        """Start the lanes, once there is something to do."""
        self._start_shared()
        for number in range(len(self._cores)):
            name = f"kernelgen-lane-{number}"
            gpu = self._gpus[number % len(self._gpus)] if self._gpus else ""
            thread = threading.Thread(target=self._work, args=(number, gpu), name=name)
            self._threads.append(thread)
            self._files.add_lane(gpu)
            thread.start()

    def _start_shared(self) -> None:
        """Start what lanes share."""
        for gpu in dict.fromkeys(self._gpus or ("",)):
            scratch = self._held.enter_context(scratch_folder())
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
        with scratch_folder() as scratch, Lane(scratch, oracles=self._oracles[gpu]) as lane:
            yield lane

    def cancel(self, future: Future[Verdict]) -> None:
        """Take a file back: it is not begun, or what runs for it ends; any thread may call this.

        Its future is cancelled, or raises LaneStopped soon. Others go on, also those with the same
        content.
        """
        with self._change:
            task = self._awaited.find(future)
            if task is None:
                return
            if task.lane is not None:
                task.lane.cancel(task.stop)
                return
            if not self._files.remove(task) and not self._awaited.leave(task):
                return  # it is being ended
        self._end(task, None)

    def _work(self, number: int, gpu: str) -> None:
        """Be one lane, in a thread of its own, and another one after each that is lost."""
        try:
            with contextlib.suppress(LaneStopped):
                lost = True
                while lost:
                    lost = self._loses_lane(number, gpu)
        except Exception as error:  # noqa: BLE001 (the outermost frame of a thread)
            self._unopened = error
        finally:
            with self._change:
                self._files.drop_lane(gpu)
            self._settle()

    def _loses_lane(self, number: int, gpu: str) -> bool:
        """Grade in one lane; return whether that ended with its loss, not with the files."""
        with self._opened(number, gpu) as lane:
            self._lanes.append(lane)
            try:
                # After that: leaving stops this lane, or it is seen here that it is to stop.
                while (task := self._next(gpu, lane)) is not None:
                    self._grade(lane, task, gpu)
            except LaneLost:
                return True
            finally:
                self._lanes.remove(lane)
        return False

    def _settle(self) -> None:
        """End the files in the queue that no lane will take."""
        with self._change:
            ended = self._files.drop_stranded()
        for task in ended:
            if task.fault is not None:
                self._awaited.finish(task, task.fault, self.environment)
            else:
                self._end(task, self._unopened or LaneStopped())

    def _next(self, gpu: str, lane: AnyLane) -> Queued | None:
        """Wait for a file; None is the end."""
        with self._change:
            while not self._stopping and gpu not in self._files.lost:
                task = self._files.take(gpu)
                if task is not None:
                    task.lane = lane
                    return task
                self._change.wait()
        return None

    def _grade(self, lane: AnyLane, task: Queued, gpu: str) -> None:
        """Grade a file; raises LaneLost once it is back in the queue, or has its verdict."""
        job = task.job
        if gpu and job.options.gpu is None:
            options = msgspec.structs.replace(job.options, gpu=gpu)
            job = msgspec.structs.replace(job, options=options)
        phases = PhasesOnly(lambda text: self._awaited.tell_phase(task, text))
        try:
            with contextlib.ExitStack() as held:
                if task.alone and not job.alone:
                    phases.phase(task.number, "again, alone: memory ran out beside others, or time")
                for key, oracles in self._oracles.items():
                    if job.alone or (task.alone and key == gpu):
                        held.enter_context(oracles.lock.working())
                        held.enter_context(oracles.lock.alone())
                        oracles.end_idle()
                task.begins()
                verdict = lane.grade_one(job, task.number, phases, stop=task.stop)
            if not self._is_put_back(task, verdict, gpu):
                with self._change:
                    # Anew, not in place: another thread may be writing it to the journal.
                    self.environment = {**self.environment, **lane.environment}
                self._awaited.finish(task, verdict, self.environment)
        except LaneLost as lost:
            self._begin_again(task, str(lost))
            raise
        except Displaced:
            task.alone = True
            self._begin_again(task, "another candidate was to be timed, and the GPU was busy")
        except LockStopped:
            self._end(task, LaneStopped())
        except Exception as error:  # noqa: BLE001 (whoever waits for the file gets it)
            self._end(task, error)
        finally:
            with self._change:
                self._files.leave(task, gpu)
                self._change.notify_all()

    def _end(self, task: Queued, error: Exception | None) -> None:
        """End a task without a verdict; those that waited for the same one are queued instead."""
        for one in self._awaited.end(task, error):
            self._queue(one)

    def _is_put_back(self, task: Queued, verdict: Verdict, gpu: str) -> bool:
        with self._change:
            back = self._files.take_back(task, verdict, gpu, shared=gpu in self._oracles)
            if back:
                task.lane = None
            self._change.notify_all()
        return back

    def _begin_again(self, task: Queued, why: str) -> None:
        """Put a file back whose lane is lost, unless that has happened too often."""
        with self._change:
            stopped = task.stop.is_set() or self._stopping
            back = not stopped and self._files.begin_again(task)
            if back:
                task.lane = None
                self._change.notify_all()
        if stopped:
            self._end(task, LaneStopped())
        elif not back:
            reason = f"begun {task.losses} times, and each time what graded it was lost: {why}"
            self._awaited.finish(task, fault_of(task.job, reason), self.environment)


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
