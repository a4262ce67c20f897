"""Repeat a piece of work within a given time, and say how much a second is done.

On a GPU each piece of work lies between two events on the stream, and the next is enqueued before
the first is done; on a CPU it is the wall clock.
"""

import itertools
from collections.abc import Callable
from statistics import median
from time import perf_counter

import msgspec
import torch

from kernelgen.hardware.calibration import Spread

_FEWEST = 3


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure.

    Attributes:
        copy_bytes: size of the buffers to copy and to write to, a power of two.
        matrix_size: rows and columns of the matrices.
        most: measurements of one kind.
        budget_s: of time for one kind, after which the fewest measurements do.
        warm_s: of work before the first measurement, so that clocks have risen.
        places_s: of time for the places of buffers of a size, of which the fastest counts and after
            which no other one is tried; 0 tries one.
    """

    copy_bytes: int
    matrix_size: int
    most: int
    budget_s: float
    warm_s: float
    places_s: float = 0.0


class Stopwatch:
    """Repeats a piece of work within its time, and says how fast it was."""

    def __init__(self, device: str, effort: Effort) -> None:
        self._cuda = device == "cuda"
        self.effort = effort

    def rate(self, work: Callable[[], object], amount: float) -> Spread:
        """Return how much a second is done."""
        with torch.no_grad():
            once_s = self._warm(work)
            count = int(self.effort.budget_s / max(once_s, 1e-9))
            count = min(max(count, _FEWEST), self.effort.most)
            times_s = self._cuda_times(work, count) if self._cuda else wall_times(work, count)
        return Spread(median=amount / median(times_s), best=amount / min(times_s), count=count)

    def _warm(self, work: Callable[[], object]) -> float:
        """Work for a while; return the seconds that the last piece took, waiting included."""
        begin = perf_counter()
        work()
        self._wait()
        while True:
            start = perf_counter()
            work()
            self._wait()
            end = perf_counter()
            if end - begin >= self.effort.warm_s:
                return end - start

    def _cuda_times(self, work: Callable[[], object], count: int) -> list[float]:
        marks = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(count + 1)
        ]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        self._wait()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in itertools.pairwise(marks)]

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def wall_times(work: Callable[[], object], count: int) -> list[float]:
    """Return the seconds that each of so many pieces of work takes by the wall clock."""
    times_s = []
    for _ in range(count):
        start = perf_counter()
        work()
        times_s.append(perf_counter() - start)
    return times_s
