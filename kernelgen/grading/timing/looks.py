"""Looks at where a candidate's threads are, each at one moment of a batch that nobody can foresee.

What a profiler records is told by the candidate's process, which can turn the recording off around
a call of a library's. Where its threads stand when they are stopped is told by the kernel. After a
stop that it noticed, a candidate could do another thing, so that a batch has one look.
"""

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import Protocol

from kernelgen.grading.timing.waits import BatchTime, Waits
from kernelgen.grading.wire.trace import Trace
from kernelgen.sandbox.standing import computes_in_a_library

# Wald's sequential test of two shares of the time that is a library's: what a profiler has recorded
# with as much again as dispatch and allocations, which it does not record, are of short calls; and
# half of the rest besides.
_UNRECORDED, _MUCH_RECORDED = 0.3, 0.4
# Where more is recorded: that and half of the rest but dispatch, and all but a sixth of the other
# half. What makes traced calls slower than others may be there to be recorded, and is taken off; so
# much, at most, leaves what an honest one runs below the first share. Of still more, the record
# shows enough to judge.
_REST, _MOST_LIBRARY, _DISPATCH_US = 6.0, 0.9, 3.0
_SLOWER, _MOST_SLOWER = 1.25, 2.0
_SURE_OF_MORE, _SURE_OF_LESS = 8.0, -6.0  # log of the odds: a false alarm in three thousand
# Beside other work, most looks find everything waiting for a turn; and so does one that sleeps.
_MOST_BATCHES, _LIKELY_MORE = 200, 3.0
_BATCH_MS, _MOST_CALLS = 12.0, 128
# Of a call beside one that was timed, beside what load explains.
_AS_QUICK, _NOISE_MS = 2.5, 1.5
_BEGUN = 0.2  # of a batch: what comes before is the way of a message


class Host(Protocol):
    """A candidate that can be stopped in the middle of a batch, from any thread."""

    shown: bool

    def pause(self) -> None:
        """Stop all of it."""

    def resume(self) -> None:
        """Let it go on."""

    def processes(self) -> Iterable[int]:
        """Return its processes."""


Meanwhile = Callable[[], AbstractContextManager[None]]


class Looks:
    """Those at one candidate, on a CPU.

    Args:
        run: runs a batch of so many calls within a context.
        most_calls: that a batch may have.
    """

    def __init__(
        self, host: Host, run: Callable[[int, Meanwhile], BatchTime], most_calls: int
    ) -> None:
        self._host, self._run = host, run
        self._most_calls = max(1, min(most_calls, _MOST_CALLS))

    def objection(self, traced: Trace, timed: Waits | None = None) -> str:
        """Return why a trace does not tell what runs, or ""; raises Judged.

        Args:
            traced: a call.
            timed: batches that bear out a quoted time. What is looked at has to be about as quick.
        """
        slower, odds, found = 0.0, 0.0, list[bool]()
        calls, beside = 1, Waits(timed.device, timed.claim, 1) if timed else None
        self._run(calls, contextlib.nullcontext)  # the first one takes longer
        waits_ms = [self._run(calls, contextlib.nullcontext).wait_ms]
        while min(waits_ms) < _BATCH_MS and calls < self._most_calls:
            calls = min(2 * calls, self._most_calls)
            waits_ms = [self._run(calls, contextlib.nullcontext).wait_ms]
        less, more = _shares(traced, min(waits_ms) / calls)
        if less > _MOST_LIBRARY:
            return ""
        told = {True: math.log(more / less), False: math.log((1.0 - more) / (1.0 - less))}
        for _ in range(_MOST_BATCHES):
            # By the system's randomness, which no state in a process foretells. Beside other work,
            # the way of a message takes longer as well.
            usual_ms = median(waits_ms)
            at_ms = random.SystemRandom().uniform(_BEGUN * usual_ms, usual_ms)
            batch = self._run(calls, partial(self._look_once, at_ms / 1e3, found))
            waits_ms.append(batch.wait_ms)
            odds = sum(told[one] for one in found)
            if timed and beside:
                beside.batches.append(batch)
                slower = (min(waits_ms) - _NOISE_MS) / calls / timed.call_ms
                slower /= beside.most_load()
            if odds < _SURE_OF_LESS and slower <= _AS_QUICK:
                return ""
            if odds > _SURE_OF_MORE:
                break
        if odds > _LIKELY_MORE:
            return (
                f"at {sum(found)} of {len(found)} moments of its calls, a thread was computing "
                "in a library of torch's or of another package, or where nobody may look, and "
                f"the profiler has recorded {_recorded(traced):.0%} of the time: what it recorded "
                "is not what ran; compute in your own code, and leave torch's recording on"
            )
        if slower <= _AS_QUICK:
            return ""
        return (
            f"when its threads are looked at, calls take {slower:.3g} times as long as those that "
            "were timed: what was looked at is not what was timed; do the same in every call"
        )

    @contextlib.contextmanager
    def _look_once(self, at_s: float, found: list[bool]) -> Iterator[None]:
        """Add a look to those found, so long after the context began, unless it has ended."""
        over = threading.Event()

        def look() -> None:
            if over.wait(at_s):
                return
            self._host.pause()
            try:
                pids, shown = self._host.processes(), self._host.shown
                if (computes := computes_in_a_library(pids, shown=shown)) is not None:
                    found.append(computes)
            finally:
                self._host.resume()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _recorded(traced: Trace) -> float:
    """Return the share of a call during which, by its trace, an operator of torch's ran."""
    return traced.busy_us / traced.call_us if traced.call_us else 0.0


def _shares(traced: Trace, call_ms: float) -> tuple[float, float]:
    """Return what a library's share is at most for what was recorded, and for more than that."""
    less, rest = _recorded(traced) + _UNRECORDED, 2.0
    if _recorded(traced) > _MUCH_RECORDED:
        slower = min(max(1.0, traced.call_us / 1e3 / (_SLOWER * call_ms)), _MOST_SLOWER / _SLOWER)
        dispatch = traced.recorded * _DISPATCH_US / traced.call_us
        less, rest = 1.0 - ((1.0 - _recorded(traced)) * slower - dispatch) / 2.0, _REST
    return less, 1.0 - (1.0 - less) / rest
