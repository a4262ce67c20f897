"""Who waits for which verdict, and how it is told.

Of tasks with one key, the first is graded; the others wait for its verdict.
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import msgspec

from kernelgen.grading.journal import Journal
from kernelgen.grading.queued import Queued
from kernelgen.grading.verdict import Verdict


class Awaited:
    """The tasks that have no verdict yet.

    Who calls `add`, `find` or `leave` holds the lock, so that the queue changes together with them;
    the other methods take it themselves, and let it go before they tell anybody.

    Args:
        change: the lock of whoever queues the tasks.
        journal: has verdicts that are not made again, and gets the others as they are made.
    """

    def __init__(self, change: threading.Condition, journal: Journal | None) -> None:
        self._change, self._journal = change, journal
        self._telling = threading.Lock()
        self._tasks: dict[Future[Verdict], Queued] = {}
        self._by_key: dict[str, Queued] = {}

    def add(self, task: Queued) -> bool:
        """Have a task wait for its verdict; return whether it is the one to be graded."""
        self._tasks[task.future] = task
        first = self._by_key.setdefault(task.key, task) if task.key else task
        if first is not task:
            first.same.append(task)
        return first is task

    def find(self, future: Future[Verdict]) -> Queued | None:
        """Return the task of a future; None once it has ended."""
        return self._tasks.get(future)

    def leave(self, task: Queued) -> bool:
        """Have a task no longer wait for another one's verdict; return whether it did."""
        first = self._by_key.get(task.key)
        waits = first is not None and task in first.same
        if first is not None and waits:
            first.same.remove(task)
        return waits

    def tell_known(self, task: Queued, devices: Sequence[str] | None) -> bool:
        """Tell the verdict that the journal has of a task; return whether it has one."""
        if self._journal is None:
            return False
        task.find_key(devices)
        known = self._journal.find(task.key)
        if known is not None:
            self._tell(task, known)
        return known is not None

    def tell_phase(self, task: Queued, text: str) -> None:
        """Tell a task's observer of a phase."""
        with self._telling:
            task.observer.phase(task.index, text)

    def finish(self, task: Queued, verdict: Verdict, environment: Mapping[str, Any]) -> None:
        """Keep a verdict in the journal, and give it to whoever waits for it."""
        if self._journal is not None and task.key and verdict.solution_sha256 == task.sha256:
            self._journal.add(task.key, verdict, environment)
        for one in (task, *self._forget(task)):
            self._tell(one, verdict)

    def end(self, task: Queued, error: Exception | None) -> list[Queued]:
        """End a task without a verdict; return those that waited for the same one."""
        same = self._forget(task)
        if error is None:
            task.future.cancel()
        else:
            _settle(task.future, error)
        return same

    def _forget(self, task: Queued) -> list[Queued]:
        """Drop a task; return those that wait for the same verdict."""
        with self._change:
            if self._by_key.get(task.key) is task:
                del self._by_key[task.key]
            same, task.same = task.same, []
            for one in (task, *same):
                self._tasks.pop(one.future, None)
            return same

    def _tell(self, task: Queued, verdict: Verdict) -> None:
        job = task.job
        verdict = msgspec.structs.replace(verdict, solution=job.name, labels=job.labels)
        try:
            with self._telling:
                task.observer.finished(task.index, verdict)
        except Exception as error:  # noqa: BLE001 (whoever waits for the file gets it)
            _settle(task.future, error)
        else:
            _settle(task.future, verdict)


def _settle(future: Future[Verdict], outcome: Verdict | Exception) -> None:
    """Give a future its outcome, unless who waits for it has cancelled it."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, Verdict):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
