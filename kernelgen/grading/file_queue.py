"""Which file a GPU grades next, and when one is to be graded again."""

from collections import Counter, defaultdict

from kernelgen.grading.queued import Queued
from kernelgen.grading.verdict import Owner, Status, Verdict

# So many files in a row that failed on a GPU, as an oracle did without a candidate, and not on
# another: it is lost.
_FAULTS_OF_A_LOST = 2
# So often a file is begun whose lane is lost, or that fails by the grader's fault.
_MOST_TRIES = 3


class FileQueue:
    """The files that wait for a lane; its callers are one at a time.

    A file that fails by the grader's fault is graded again on another GPU. A GPU on which that
    happens repeatedly, and on which an oracle fails without a candidate, gets no more files: what
    needs a candidate to happen says nothing of the GPU. A file whose memory ran out beside others
    is graded again after all that wait, once they have left the GPU: even those that rest hold some
    of its memory.

    Attributes:
        lost: the GPUs that get no more files.
    """

    def __init__(self) -> None:
        self._waiting: list[Queued] = []
        self._at_work: defaultdict[str, list[Queued]] = defaultdict(list)
        self._lanes: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self.lost: set[str] = set()

    def add_lane(self, gpu: str) -> None:
        """Count a lane on a GPU."""
        self._lanes[gpu] += 1

    def drop_lane(self, gpu: str) -> None:
        """Count it no longer."""
        self._lanes[gpu] -= 1

    def lanes_for(self, task: Queued) -> int:
        """Return how many lanes may take a file."""
        barred = task.tried | self.lost
        return sum(count for gpu, count in self._lanes.items() if gpu not in barred)

    def append(self, task: Queued) -> None:
        """Have a file wait behind the others."""
        self._waiting.append(task)

    def remove(self, task: Queued) -> bool:
        """Drop a file that waits; return whether it did."""
        waits = task in self._waiting
        if waits:
            self._waiting.remove(task)
        return waits

    def clear(self) -> list[Queued]:
        """Drop all that wait, and return them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def drop_stranded(self) -> list[Queued]:
        """Drop those that no lane will take, and return them."""
        stranded = [task for task in self._waiting if not self.lanes_for(task)]
        self._waiting = [task for task in self._waiting if task not in stranded]
        return stranded

    def take(self, gpu: str) -> Queued | None:
        """Return the next file for a lane on a GPU, None where it has to wait for one."""
        task = next((task for task in self._waiting if gpu not in task.tried), None)
        at_work = self._at_work[gpu]
        if task is None or gpu in self.lost:
            return None
        if at_work and (task.alone or at_work[0].alone):
            return None
        self._waiting.remove(task)
        at_work.append(task)
        return task

    def leave(self, task: Queued, gpu: str) -> None:
        """A lane on this GPU is done with a file, whatever came of it."""
        self._at_work[gpu].remove(task)

    def take_back(self, task: Queued, verdict: Verdict, gpu: str, *, shared: bool) -> bool:
        """Have a file wait again if it may do better elsewhere, or alone; return whether it does.

        Args:
            task: the file.
            verdict: what it has come to.
            gpu: on which.
            shared: the lanes of this GPU use the same memory.
        """
        # What is refused at sight never fits.
        out_of_memory = verdict.status is Status.OUT_OF_MEMORY and verdict.device != ""
        if out_of_memory and shared and self._lanes[gpu] > 1 and not task.alone:
            task.alone = True
            self._waiting.append(task)
            return True
        if verdict.owner is not Owner.GRADER:
            self._faults[gpu] = 0
            self._faults.update(task.unfit)
            self.lost |= {one for one in task.unfit if self._faults[one] >= _FAULTS_OF_A_LOST}
            return False
        task.fault = verdict
        task.tried.add(gpu)
        if verdict.device_fault:
            task.unfit.add(gpu)
        again = len(task.tried) < _MOST_TRIES and bool(self.lanes_for(task))
        if again:
            self._waiting.insert(0, task)
        return again

    def begin_again(self, task: Queued) -> bool:
        """Have a file wait whose lane is lost, unless that has happened too often."""
        task.losses += 1
        again = task.losses < _MOST_TRIES
        if again:
            self._waiting.insert(0, task)
        return again
