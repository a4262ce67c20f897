"""The queue of a crew: which file a GPU grades next, when again, and who waits for its verdict."""

import contextlib
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import msgspec

from kernelgen.grading.queue.job import AnyLane, Entry, LaneStopped
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.verdict import Owner, Status, Verdict

# A GPU is lost once as many files in a row failed on it, as an oracle did without a candidate, and
# not on another.
_FAULTS_OF_A_LOST = 2
# Times that a file is begun whose lane is lost, or that fails by the grader's fault.
_MOST_TRIES = 3


class Queue:
    """The files of a crew that have no verdict yet; any thread may call any method.

    Of files with one key, the first is graded; the others wait for its verdict.

    A file that fails by the grader's fault is graded again on another GPU. A GPU on which that
    happens repeatedly, and on which an oracle fails without a candidate, gets no more files: what
    needs a candidate to happen says nothing of the GPU. A file whose memory ran out beside others
    is graded again after all that wait, once they have left the GPU: even those that rest hold some
    of its memory.

    Args:
        journal: has verdicts that are not made again, and gets the others as they are made.

    Attributes:
        lost: the GPUs that get no more files.
        closed: nothing is taken from it any more.
        environment: facts about the versions and, once a device was used, about it.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._change, self._telling = threading.Condition(), threading.Lock()
        self._journal = journal
        self._waiting: list[Entry] = []
        self._at_work: defaultdict[str, list[Entry]] = defaultdict(list)
        self._entries: dict[Future[Verdict], Entry] = {}
        self._by_key: dict[str, Entry] = {}
        self._numbers = itertools.count(1)
        self._lanes: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._unopened: Exception | None = None
        self.lost: set[str] = set()
        self.closed = False
        self.environment: dict[str, Any] = {} if journal is None else dict(journal.environment)

    def add_lane(self, gpu: str) -> None:
        """Count a lane on a GPU."""
        with self._change:
            self._lanes[gpu] += 1

    def drop_lane(self, gpu: str, unopened: Exception | None = None) -> None:
        """Count it no longer, and end the files that no lane will take now.

        Args:
            gpu: of the lane.
            unopened: why it could not be opened.
        """
        with self._change:
            self._lanes[gpu] -= 1
            self._unopened = unopened or self._unopened
            stranded = [entry for entry in self._waiting if not self._lanes_for(entry)]
            self._waiting = [entry for entry in self._waiting if entry not in stranded]
        for entry in stranded:
            if entry.fault is not None:
                self.finish(entry, entry.fault)
            else:
                self.end(entry, self._unopened or LaneStopped())

    def tell_known(self, entry: Entry, devices: Sequence[str] | None) -> bool:
        """Tell the verdict that the journal has of a file; return whether it has one."""
        if self._journal is None:
            return False
        entry.find_key(devices)
        known = self._journal.find(entry.key)
        if known is not None:
            self._tell(entry, known)
        return known is not None

    def add(self, entry: Entry) -> None:
        """Have a file wait behind the others; end it where no lane will take it."""
        with self._change:
            if self.closed:
                entry.future.cancel()
            elif not self._lanes_for(entry):
                _settle(entry.future, self._unopened or LaneStopped())
            else:
                self._entries[entry.future] = entry
                first = self._by_key.setdefault(entry.key, entry) if entry.key else entry
                if first is not entry:
                    first.same.append(entry)
                    return
                entry.number = next(self._numbers)
                self._waiting.append(entry)
                self._change.notify_all()

    def close(self) -> None:
        """End what waits; nothing is taken from now on."""
        with self._change:
            self.closed = True
            waiting, self._waiting = self._waiting, []
            self._change.notify_all()
        for entry in waiting:
            self.end(entry, None)

    def cancel(self, future: Future[Verdict]) -> None:
        """Take a file back: it is not begun, or what runs for it ends."""
        with self._change:
            entry = self._entries.get(future)
            if entry is None:
                return
            if entry.lane is not None:
                entry.lane.cancel(entry.stop)
                return
            first = self._by_key.get(entry.key)
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif first is not None and entry in first.same:
                first.same.remove(entry)
            else:
                return  # it is being ended
        self.end(entry, None)

    def wait(self, gpu: str, lane: AnyLane) -> Entry | None:
        """Wait for a file for a lane on a GPU; None is the end."""
        with self._change:
            while not self.closed and gpu not in self.lost:
                if (entry := self.take(gpu, lane)) is not None:
                    return entry
                self._change.wait()
        return None

    def take(self, gpu: str, lane: AnyLane | None = None) -> Entry | None:
        """Return the next file for a lane on a GPU, None where it has to wait for one."""
        with self._change:
            entry = next((one for one in self._waiting if gpu not in one.tried), None)
            at_work = self._at_work[gpu]
            if entry is None or gpu in self.lost:
                return None
            if at_work and (entry.alone or at_work[0].alone):
                return None
            self._waiting.remove(entry)
            at_work.append(entry)
            entry.lane = lane
            return entry

    def leave(self, entry: Entry, gpu: str) -> None:
        """A lane on this GPU is done with a file, whatever came of it."""
        with self._change:
            self._at_work[gpu].remove(entry)
            self._change.notify_all()

    def take_back(self, entry: Entry, verdict: Verdict, gpu: str, *, shared: bool) -> bool:
        """Have a file wait again if it may do better elsewhere, or alone; return whether it does.

        Args:
            entry: the file.
            verdict: what it has come to.
            gpu: on which.
            shared: the lanes of this GPU use the same memory.
        """
        with self._change:
            # A file that is refused at sight never fits.
            out_of_memory = verdict.status is Status.OUT_OF_MEMORY and verdict.device != ""
            if out_of_memory and shared and self._lanes[gpu] > 1 and not entry.alone:
                entry.alone = True
                self._put_back(entry, len(self._waiting))
                return True
            if verdict.owner is not Owner.GRADER:
                self._faults[gpu] = 0
                self._faults.update(entry.unfit)
                self.lost |= {one for one in entry.unfit if self._faults[one] >= _FAULTS_OF_A_LOST}
                self._change.notify_all()
                return False
            entry.fault = verdict
            entry.tried.add(gpu)
            if verdict.device_fault:
                entry.unfit.add(gpu)
            again = len(entry.tried) < _MOST_TRIES and bool(self._lanes_for(entry))
            if again:
                self._put_back(entry)
            return again

    def begin_again(self, entry: Entry, why: str) -> None:
        """Have a file wait whose lane is lost, unless that has happened too often."""
        with self._change:
            entry.losses += 1
            stopped = entry.stop.is_set() or self.closed
            if not stopped and entry.losses < _MOST_TRIES:
                self._put_back(entry)
                return
        if stopped:
            self.end(entry, LaneStopped())
        else:
            reason = f"begun {entry.losses} times, and each time what graded it was lost: {why}"
            self.finish(entry, entry.job.fault(reason))

    def finish(self, entry: Entry, verdict: Verdict, facts: Mapping[str, Any] = {}) -> None:
        """Keep a verdict in the journal, and give it to whoever waits for it.

        Args:
            entry: the file.
            verdict: on it.
            facts: about the environment that it was made in.
        """
        with self._change:
            # Anew, not in place: another thread may be writing it to the journal.
            environment = self.environment = {**self.environment, **facts}
        if self._journal is not None and entry.key and verdict.solution_sha256 == entry.sha256:
            self._journal.add(entry.key, verdict, environment)
        for one in (entry, *self._forget(entry)):
            self._tell(one, verdict)

    def end(self, entry: Entry, error: Exception | None) -> None:
        """End a file without a verdict; those that waited for the same one are queued instead."""
        same = self._forget(entry)
        if error is None:
            entry.future.cancel()
        else:
            _settle(entry.future, error)
        for one in same:
            self.add(one)

    def tell_phase(self, entry: Entry, text: str) -> None:
        """Tell a file's observer of a phase."""
        if entry.observer is not None:
            with self._telling:
                entry.observer.phase(entry.index, text)

    def _lanes_for(self, entry: Entry) -> int:
        """Return how many lanes may take a file."""
        barred = entry.tried | self.lost
        return sum(count for gpu, count in self._lanes.items() if gpu not in barred)

    def _put_back(self, entry: Entry, place: int = 0) -> None:
        entry.lane = None
        self._waiting.insert(place, entry)
        self._change.notify_all()

    def _forget(self, entry: Entry) -> list[Entry]:
        """Drop a file; return those that wait for the same verdict."""
        with self._change:
            if self._by_key.get(entry.key) is entry:
                del self._by_key[entry.key]
            same, entry.same = entry.same, []
            for one in (entry, *same):
                self._entries.pop(one.future, None)
            return same

    def _tell(self, entry: Entry, verdict: Verdict) -> None:
        job = entry.job
        verdict = msgspec.structs.replace(verdict, solution=job.name, labels=job.labels)
        try:
            if entry.observer is not None:
                with self._telling:
                    entry.observer.finished(entry.index, verdict)
        except Exception as error:  # noqa: BLE001 (whoever waits for the file gets it)
            _settle(entry.future, error)
        else:
            _settle(entry.future, verdict)


def _settle(future: Future[Verdict], outcome: Verdict | Exception) -> None:
    """Give a future its outcome, unless who waits for it has cancelled it."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, Verdict):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
