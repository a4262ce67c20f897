"""Which file a GPU grades next, and when one is graded again."""

from pathlib import Path

import msgspec
import pytest
from report_runs import passed

from kernelgen.grading.file_queue import FileQueue
from kernelgen.grading.options import GradeOptions, Job, PhasesOnly
from kernelgen.grading.queued import Queued
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


def queue_of(count: int, *gpus: str) -> tuple[FileQueue, list[Queued]]:
    """Return a queue of so many files, and a lane for each of these GPUs."""
    queue = FileQueue()
    job = Job(path=Path("a.py"), options=GradeOptions())
    tasks = [Queued(job, PhasesOnly(lambda _: None), number) for number in range(count)]
    for gpu in gpus:
        queue.add_lane(gpu)
    for task in tasks:
        queue.append(task)
    return queue, tasks


def ends(queue: FileQueue, task: Queued, verdict: Verdict, gpu: str) -> bool:
    """Give a file's verdict; return whether it is graded again."""
    again = queue.take_back(task, verdict, gpu, shared=True)
    queue.leave(task, gpu)
    return again


def test_files_are_taken_in_their_order() -> None:
    queue, tasks = queue_of(2, "0", "0")
    assert [queue.take("0") for _ in range(3)] == [*tasks, None]


def test_what_lacks_memory_beside_others_comes_last_and_has_its_gpu_alone() -> None:
    queue, (first, second, third) = queue_of(3, "0", "0")
    assert (queue.take("0"), queue.take("0")) == (first, second)
    assert ends(queue, first, OUT_OF_MEMORY, "0")
    assert queue.take("0") is third, "those that wait come before it"
    queue.leave(second, "0")
    assert queue.take("0") is None, "the third is still there"
    queue.leave(third, "0")
    queue.append(second)
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
    assert queue.lanes_for(first) == len(("0", "0", "1"))


def test_what_is_refused_at_sight_or_by_the_only_lane_is_not_tried_again() -> None:
    for lanes, verdict in ((2, msgspec.structs.replace(OUT_OF_MEMORY, device="")), (1, FAULT)):
        queue, (only,) = queue_of(1, *["0"] * lanes)
        queue.take("0")
        assert not ends(queue, only, verdict, "0")


@pytest.mark.parametrize("device_fault", ["", "CUDA error: unspecified launch failure"])
def test_a_gpu_is_lost_that_fails_without_a_candidate_where_another_does_not(
    device_fault: str,
) -> None:
    queue, tasks = queue_of(3, "good", "bad")
    fault = msgspec.structs.replace(FAULT, device_fault=device_fault)
    for task in tasks[:2]:
        assert queue.take("bad") is task
        assert ends(queue, task, fault, "bad")
        assert queue.take("good") is task
        assert not ends(queue, task, passed("a.py"), "good")
    assert queue.lost == ({"bad"} if device_fault else set())
    assert queue.take("bad") is (None if device_fault else tasks[2])
