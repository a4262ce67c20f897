"""A thread that takes candidates from a queue and grades them in a lane of its own."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions, PhasesOnly
from kernelgen.grading.supervisor.lane import Lane, LaneStopped
from kernelgen.grading.supervisor.workers import FORK_SERVER_CODE
from kernelgen.sandbox.tree import ancestors_of
from kernelgen.selftest.comparison import left_behind, misses
from kernelgen.selftest.corpus import Candidate
from kernelgen.selftest.record import Outcome, Result


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate to be graded.

    Attributes:
        index: position among all trials of the selftest.
        round: 1 for the first.
        candidate: the file.
    """

    index: int
    round: int
    candidate: Candidate


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A trial entered a phase."""

    index: int
    text: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A trial has its result."""

    index: int
    result: Result


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A thread has ended: with all done, or by an error.

    Attributes:
        environment: what its lane found out about the machine.
        error: what ended it, if anything did.
    """

    environment: dict[str, Any]
    error: Exception | None = None


Events = queue.SimpleQueue[Phase | Finished | Ended]


class Worker(threading.Thread):
    """Grades candidates, one after another, until none is waiting or it is stopped.

    Args:
        cores: that it and all that it starts may run on.
        waiting: the trials that nobody has begun; shared with other workers.
        base: options of the grader that no header decides.
        events: where it tells what happens; its last word is `Ended`.
    """

    def __init__(
        self, cores: Sequence[int], waiting: deque[Trial], base: GradeOptions, events: Events
    ) -> None:
        super().__init__(name="kernelgen-selftest")
        self._cores, self._waiting, self._base, self._events = cores, waiting, base, events
        self._stopped = threading.Event()
        self._lane: Lane | None = None

    def stop(self) -> None:
        """Have it end soon, with all that it started; its trial gets no result."""
        self._stopped.set()
        if self._lane is not None:
            self._lane.stop()

    def run(self) -> None:
        """Grade; called by `start`, in the thread."""
        environment: dict[str, Any] = {}
        error: Exception | None = None
        try:
            # On Linux this is the calling thread's own affinity, which what it starts inherits.
            os.sched_setaffinity(0, self._cores)
            with scratch_folder() as scratch, Lane(scratch) as lane:
                self._lane = lane
                self._work(lane)
                environment = lane.environment
        except LaneStopped:
            environment = {}
        except Exception as raised:  # noqa: BLE001 (the outermost frame of a thread)
            error = raised
        finally:
            self._events.put(Ended(environment=environment, error=error))

    def _work(self, lane: Lane) -> None:
        while not self._stopped.is_set():
            try:
                trial = self._waiting.popleft()
            except IndexError:
                return
            result = grade_trial(lane, trial, self._base, self._tell(trial))
            self._events.put(Finished(index=trial.index, result=result))

    def _tell(self, trial: Trial) -> Callable[[str], None]:
        return lambda text: self._events.put(Phase(index=trial.index, text=text))


def grade_trial(
    lane: Lane, trial: Trial, base: GradeOptions, tell: Callable[[str], None]
) -> Result:
    """Grade a candidate and compare the verdict with its header.

    Raises:
        LaneStopped: the lane was stopped meanwhile.
    """
    candidate = trial.candidate
    started = time.monotonic()
    verdict = lane.grade_one(candidate.path, candidate.options(base), trial.index, PhasesOnly(tell))
    seconds = time.monotonic() - started
    # At once: what is still there now was there with the verdict.
    found = misses(candidate, verdict)
    if candidate.orphan is not None:
        found += left_behind(running_with(candidate.orphan))
    return Result(
        file=candidate.name,
        kind=candidate.kind,
        device=candidate.device,
        round=trial.round,
        expected=candidate.expect,
        outcome=_outcome(candidate, missed=bool(found)),
        exploit=candidate.exploit,
        seconds=seconds,
        misses=found,
        note=candidate.gap or "",
        verdict=verdict,
    )


def _outcome(candidate: Candidate, *, missed: bool) -> Outcome:
    if candidate.gap is not None:
        return Outcome.KNOWN_GAP if missed else Outcome.CLOSED_GAP
    return Outcome.MISS if missed else Outcome.AS_EXPECTED


def running_with(argument: str) -> list[str]:
    """Return process id and command line of every process that has this argument.

    Not those that somebody else's grader has started and not ended yet: two selftests may run on a
    machine at once.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        arguments = _arguments(int(process.name))
        if argument.encode() in arguments and not _is_of_another_grader(int(process.name)):
            found.append(f"{process.name}: {b' '.join(arguments).decode(errors='replace')}")
    return found


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


def _is_of_another_grader(pid: int) -> bool:
    above = ancestors_of(pid)
    server = FORK_SERVER_CODE.encode()
    return os.getpid() not in above and any(server in _arguments(one) for one in above)
