"""Candidates on their way to results: in random order, and several at once in lanes."""

import contextlib
import os
import queue
import random
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from kernelgen.errors import ExitCode
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.lane import versions
from kernelgen.selftest.crew import Ended, Finished, Phase, Trial, Worker
from kernelgen.selftest.record import SCHEMA_VERSION, Outcome, Result, SelftestRun
from kernelgen.selftest.selection import Selection

# With fewer cores than this, a lane is not given cores of its own: a candidate's second thread
# would find none.
_LEAST_CORES = 2
# Python's own 5 ms would let one lane's statistics hold up the clock that another lane reads.
_SWITCH_INTERVAL_S = 0.0005


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A selftest to be run.

    Attributes:
        selection: the candidates.
        seed: of the order.
        jobs: how many to grade at once.
        rounds: how often to grade each, every time in another order.
        base: options of the grader that no header decides.
    """

    selection: Selection
    seed: int
    jobs: int
    rounds: int = 1
    base: GradeOptions = GradeOptions()


class Watcher(Protocol):
    """Told what is going on, in the thread that called `selftest`."""

    def begin(self, names: Sequence[str]) -> None:
        """These are graded, in about this order."""

    def phase(self, index: int, text: str) -> None:
        """The candidate at this position entered a phase."""

    def finished(self, index: int, result: Result) -> None:
        """The candidate at this position has its result."""


class SelftestInterrupted(KeyboardInterrupt):
    """The selftest was interrupted; everything that was started has been ended.

    Attributes:
        run: the results that were there by then.
        exit_code: of the program: 130 after ^C, 143 after SIGTERM.
    """

    def __init__(self, run: SelftestRun, exit_code: int) -> None:
        super().__init__()
        self.run = run
        self.exit_code = exit_code


def selftest(plan: Plan, watcher: Watcher) -> SelftestRun:
    """Grade the candidates of a plan and compare each verdict with its file's header.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
        SelftestInterrupted: by ^C or SIGTERM, after everything that was started has been ended.
    """
    started = time.monotonic()
    rounds = ordered(plan)
    results: list[Result] = []
    environment: dict[str, Any] = versions()

    def run(*, interrupted: bool) -> SelftestRun:
        return SelftestRun(
            schema=SCHEMA_VERSION,
            environment=environment,
            seed=plan.seed,
            jobs=plan.jobs,
            rounds=plan.rounds,
            seconds=time.monotonic() - started,
            interrupted=interrupted,
            results=(*results, *_left_out(plan)),
        )

    watcher.begin([trial.candidate.name for trials in rounds for trial in trials])
    try:
        with contextlib.closing(_events(plan, rounds)) as events:
            for event in events:
                if isinstance(event, Phase):
                    watcher.phase(event.index, event.text)
                elif isinstance(event, Finished):
                    results.append(event.result)
                    watcher.finished(event.index, event.result)
                else:
                    environment |= event.environment
    except KeyboardInterrupt:
        raise SelftestInterrupted(run(interrupted=True), ExitCode.INTERRUPTED) from None
    except SystemExit as left:
        # What was found by then is not lost to a deadline that ends us by SIGTERM.
        code = left.code if isinstance(left.code, int) else ExitCode.INTERRUPTED
        raise SelftestInterrupted(run(interrupted=True), code) from None
    return run(interrupted=False)


def ordered(plan: Plan) -> list[list[Trial]]:
    """Return the rounds of a plan, each in its random order; the same seed gives the same."""
    order = random.Random(plan.seed)  # noqa: S311 (an order that has to be repeatable)
    rounds: list[list[Trial]] = []
    for number in range(1, plan.rounds + 1):
        shuffled = list(plan.selection.run)
        order.shuffle(shuffled)
        # Those that nothing may disturb come when the others are done; slow ones come first, or
        # all lanes would wait for the last of them.
        shuffled.sort(key=lambda candidate: (candidate.undisturbed, candidate.slow is None))
        first = sum(map(len, rounds))
        rounds.append(
            [
                Trial(index=first + position, round=number, candidate=candidate)
                for position, candidate in enumerate(shuffled)
            ]
        )
    return rounds


def shares_of_cores(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Return the cores of each lane, none of them twice; or all for each where they are too few."""
    if len(cores) < lanes * _LEAST_CORES:
        return [tuple(cores)] * lanes
    return [tuple(cores[first::lanes]) for first in range(lanes)]


def lane_options(plan: Plan, lane: int) -> GradeOptions:
    """Return the options of a lane: the lanes take the GPUs in turn."""
    gpus = plan.selection.gpus
    if plan.base.gpu is not None or not gpus:
        return plan.base
    return msgspec.structs.replace(plan.base, gpu=gpus[lane % len(gpus)])


def _events(
    plan: Plan, rounds: Sequence[Sequence[Trial]]
) -> Generator[Phase | Finished | Ended, None, None]:
    """Yield what happens in all rounds; within one, first several at once, then one at a time."""
    gpus = plan.selection.gpus
    for trials in rounds:
        crowd = [trial for trial in trials if not trial.candidate.undisturbed]
        lone = [trial for trial in trials if trial.candidate.undisturbed]
        cuda = [trial for trial in lone if trial.candidate.device == "cuda"]
        cpu = [trial for trial in lone if trial.candidate.device == "cpu"]
        yield from _in_lanes(crowd, plan.jobs, plan)
        # Alone on a GPU is alone enough: every lane has cores of its own.
        yield from _in_lanes(cuda, min(plan.jobs, max(1, len(gpus))), plan)
        yield from _in_lanes(cpu, 1, plan)


def _in_lanes(
    trials: Sequence[Trial], jobs: int, plan: Plan
) -> Generator[Phase | Finished | Ended, None, None]:
    """Yield what happens while trials are graded; on leaving, nothing runs any more."""
    waiting = deque(trials)
    events: queue.SimpleQueue[Phase | Finished | Ended] = queue.SimpleQueue()
    shares = shares_of_cores(sorted(os.sched_getaffinity(0)), min(jobs, len(trials)))
    workers = [
        Worker(cores, waiting, lane_options(plan, number), events)
        for number, cores in enumerate(shares)
    ]
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        for worker in workers:
            worker.start()
        running = len(workers)
        while running:
            event = events.get()
            if isinstance(event, Ended):
                running -= 1
                if event.error is not None:
                    raise event.error
            yield event
    finally:
        waiting.clear()
        started = [worker for worker in workers if worker.ident is not None]
        for worker in started:
            worker.stop()
        for worker in started:
            worker.join()
        sys.setswitchinterval(usual_s)


def _left_out(plan: Plan) -> Iterator[Result]:
    for one in plan.selection.left_out:
        candidate = one.candidate
        yield Result(
            file=candidate.name,
            kind=candidate.kind,
            device=candidate.device,
            round=1,
            expected=candidate.expect,
            outcome=Outcome.NOT_RUN,
            exploit=candidate.exploit,
            note=one.reason,
        )
