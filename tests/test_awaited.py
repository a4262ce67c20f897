"""Who waits for which verdict: one of a key is graded, all are told, cancelled or not."""

import threading
from pathlib import Path

import pytest
from report_runs import passed

from kernelgen.grading.awaited import Awaited
from kernelgen.grading.options import GradeOptions, Job, PhasesOnly
from kernelgen.grading.queued import Queued

VERDICT = passed("tiny_scale")


def task(key: str = "") -> Queued:
    made = Queued(Job(path=Path("a.py"), options=GradeOptions()), PhasesOnly(lambda _: None), 0)
    made.key = key
    return made


@pytest.fixture
def awaited() -> Awaited:
    return Awaited(threading.Condition(), journal=None)


def test_what_is_asked_twice_is_graded_once_and_told_twice(awaited: Awaited) -> None:
    tasks = [task("k"), task("k"), task("other"), task(), task()]
    assert [awaited.add(one) for one in tasks] == [True, False, True, True, True]
    awaited.finish(tasks[0], VERDICT, {})
    assert [one.future.done() for one in tasks] == [True, True, False, False, False]
    assert awaited.find(tasks[0].future) is None


def test_who_waits_for_one_that_ends_is_to_be_queued(awaited: Awaited) -> None:
    first, second, third = task("k"), task("k"), task("k")
    for one in (first, second, third):
        awaited.add(one)
    assert awaited.leave(third)
    assert not awaited.leave(third)
    assert awaited.end(first, None) == [second]
    assert first.future.cancelled()
    assert not awaited.leave(second)


@pytest.mark.parametrize("error", [None, OSError()])
def test_who_has_cancelled_his_future_hinders_nobody(
    awaited: Awaited, error: Exception | None
) -> None:
    first, second = task("k"), task("k")
    awaited.add(first)
    awaited.add(second)
    first.future.cancel()
    if error is None:
        awaited.finish(first, VERDICT, {})
        assert second.future.result(0).status is VERDICT.status
    else:
        assert awaited.end(first, error) == [second]
