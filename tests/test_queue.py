"""Which file a GPU grades next, when one is graded again, and who is told of its verdict."""

from pathlib import Path

import msgspec
import pytest
from report_runs import passed

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Entry, Job
from kernelgen.grading.queue.queue import Queue
from kernelgen.grading.verdict import Owner, Status, Verdict

OUT_OF_MEMORY = msgspec.structs.replace(
    passed("a.py"),
    status=Status.OUT_OF_MEMORY,
    owner=Owner.GRADER,
    reason="no room",
    device="some GPU",
    timing=None,
)
FAULT = msgspec.structs.replace(OUT_OF_MEMORY, status=Status.GRADER_ERROR)
JOB = Job(path=Path("a.py"), options=GradeOptions())


def queue_of(keys: int | list[str], *gpus: str) -> tuple[Queue, list[Entry]]:
    """Return a queue of so many files, or of files with these keys, and a lane for each GPU."""
    queue = Queue()
    named = [""] * keys if isinstance(keys, int) else keys
    entries = [Entry(job=JOB, key=key) for key in named]
    for gpu in gpus or ("0",):
        queue.add_lane(gpu)
    for entry in entries:
        queue.add(entry)
    return queue, entries


def ends(queue: Queue, entry: Entry, verdict: Verdict, gpu: str) -> bool:
    """Give a file's verdict; return whether it is graded again."""
    again = queue.take_back(entry, verdict, gpu, shared=True)
    queue.leave(entry, gpu)
    return again


def test_files_are_taken_in_their_order() -> None:
    queue, entries = queue_of(2, "0", "0")
    assert [queue.take("0") for _ in range(3)] == [*entries, None]


def test_what_lacks_memory_beside_others_comes_last_and_has_its_gpu_alone() -> None:
    queue, (first, second, third) = queue_of(3, "0", "0")
    assert (queue.take("0"), queue.take("0")) == (first, second)
    assert ends(queue, first, OUT_OF_MEMORY, "0")
    assert queue.take("0") is third, "those that wait come before it"
    queue.leave(second, "0")
    assert queue.take("0") is None, "the third is still there"
    queue.leave(third, "0")
    queue.add(second)
    assert queue.take("0") is first
    assert queue.take("0") is None, "it has the GPU alone"
    assert not ends(queue, first, OUT_OF_MEMORY, "0"), "alone it does not fit either"
    assert queue.take("0") is second


def test_who_is_alone_on_one_gpu_leaves_the_others_at_work() -> None:
    queue, (first, second, third) = queue_of(3, "0", "0", "1")
    queue.take("0")
    assert ends(queue, first, OUT_OF_MEMORY, "0")
    assert (queue.take("0"), queue.take("1")) == (second, third)
    queue.leave(third, "1")
    assert queue.take("1") is first


def test_what_is_refused_at_sight_or_by_the_only_lane_is_not_tried_again() -> None:
    for lanes, verdict in ((2, msgspec.structs.replace(OUT_OF_MEMORY, device="")), (1, FAULT)):
        queue, (only,) = queue_of(1, *["0"] * lanes)
        queue.take("0")
        assert not ends(queue, only, verdict, "0")


@pytest.mark.parametrize("device_fault", ["", "CUDA error: unspecified launch failure"])
def test_a_gpu_is_lost_that_fails_without_a_candidate_where_another_does_not(
    device_fault: str,
) -> None:
    queue, entries = queue_of(3, "good", "bad")
    fault = msgspec.structs.replace(FAULT, device_fault=device_fault)
    for entry in entries[:2]:
        assert queue.take("bad") is entry
        assert ends(queue, entry, fault, "bad")
        assert queue.take("good") is entry
        assert not ends(queue, entry, passed("a.py"), "good")
    assert queue.lost == ({"bad"} if device_fault else set())
    assert queue.take("bad") is (None if device_fault else entries[2])


def test_a_file_whose_lanes_are_always_lost_gets_a_verdict_and_no_lane_strands_it() -> None:
    queue, (first, second) = queue_of(2)
    for _ in range(3):
        assert queue.take("0") is first
        queue.begin_again(first, "gone")
        queue.leave(first, "0")
    assert first.future.result(0).status is Status.GRADER_ERROR
    queue.drop_lane("0", OSError("no lane"))
    late = Entry(job=JOB)
    queue.add(late)
    for entry in (second, late):
        with pytest.raises(OSError, match="no lane"):
            entry.future.result(0)


def test_what_is_asked_twice_is_graded_once_and_told_twice() -> None:
    queue, entries = queue_of(["k", "k", "other", "", ""])
    assert [queue.take("0") for _ in range(5)] == [entries[0], *entries[2:], None]
    queue.finish(entries[0], passed("a.py"))
    assert [one.future.done() for one in entries] == [True, True, False, False, False]


def test_who_waits_for_one_that_ends_is_graded_instead() -> None:
    queue, (first, second, third) = queue_of(["k", "k", "k"])
    queue.cancel(third.future)
    queue.cancel(first.future)
    assert [first.future.cancelled(), third.future.cancelled()] == [True, True]
    assert queue.take("0") is second
    queue.finish(second, passed("a.py"))
    assert second.future.result(0).passed


@pytest.mark.parametrize("error", [None, OSError()])
def test_who_has_cancelled_his_future_hinders_nobody(error: Exception | None) -> None:
    queue, (first, second) = queue_of(["k", "k"])
    assert queue.take("0") is first
    first.future.cancel()
    if error is None:
        queue.finish(first, passed("a.py"))
        assert second.future.result(0).passed
    else:
        queue.end(first, error)
        assert queue.take("0") is second


def test_what_waits_in_a_queue_that_is_closed_is_cancelled() -> None:
    queue, (first, second, third) = queue_of(["k", "k", "other"])
    assert queue.take("0") is first
    queue.close()
    queue.end(first, OSError())
    assert [one.future.cancelled() for one in (second, third)] == [True, True]
    assert not queue.take("0")
