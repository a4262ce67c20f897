"""A GPU that is left alone, and outputs that stay as they are."""

import pytest

from kernelgen.grading.supervisor.calls import unsettled
from kernelgen.grading.timing.quiet import MemoryLimits, Quiet
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire.messages import Probed, Verified

QUICK_MS = 10.0
"""The time of a write by its quickest parts, whoever uses the GPU between them."""


def probed(elapsed_ms: float) -> Probed:
    return Probed(
        elapsed_ms=elapsed_ms, alone_ms=QUICK_MS, written_bytes=40 << 30, cache_bytes=50 << 20
    )


class Device:
    """An invented GPU: writes take what is listed, in that order, then the last of it."""

    def __init__(self, *times_ms: float) -> None:
        self.times_ms = list(times_ms)
        self.writes = 0
        self.waited_s = 0.0

    def probe(self) -> Probed:
        """Write."""
        self.writes += 1
        return probed(self.times_ms.pop(0) if len(self.times_ms) > 1 else self.times_ms[0])

    def pause(self, seconds: float) -> None:
        """Wait, in no time."""
        self.waited_s += seconds


def quiet_after(
    during: list[float], beside: list[float], after: list[float]
) -> tuple[MemoryLimits, int, int]:
    """Return what comes of it, and how many writes were asked for beside and after it."""
    device = Device(*beside)
    quiet = Quiet(device.probe, device.pause)
    quiet.beside([probed(ms) for ms in during], device.probe)
    beside_writes = device.writes
    device.times_ms, device.writes = list(after), 0
    limits = quiet.after()
    return limits, beside_writes, device.writes


def test_a_gpu_that_is_left_alone_tells_its_speed() -> None:
    limits, beside, after = quiet_after([11.0, 30.0, 10.2], [99.0], [10.3])
    assert limits.gbps == pytest.approx((40 << 30) / QUICK_MS / 1e6)
    assert (limits.cache_bytes, limits.shared, beside, after) == (50 << 20, False, 0, 3)


def test_a_gpu_that_is_busy_while_the_candidate_is_done_is_tampered_with() -> None:
    with pytest.raises(Judged, match=r"21 ms beside it, and at most 10\.1 ms in 20") as judged:
        quiet_after([21.0, 30.0], [22.0], [10.0, 10.1])
    assert judged.value.status is Status.TAMPERED


def test_one_quick_write_beside_it_clears_the_candidate() -> None:
    limits, beside, after = quiet_after([21.0, 30.0], [25.0, 24.0, 11.0, 99.0], [10.0])
    assert (limits.shared, beside, after) == (False, 3, 3)


def test_without_batches_there_is_a_write_beside_it_all_the_same() -> None:
    with pytest.raises(Judged, match="keeps the GPU busy"):
        quiet_after([], [22.0], [10.0])


def test_a_gpu_that_others_use_all_the_time_is_nobody_s_fault() -> None:
    limits, beside, _ = quiet_after([21.0, 30.0], [22.0], [20.0])
    assert (limits.gbps > 0, limits.shared, beside) == (True, True, 10)


def test_a_gpu_that_others_use_now_and_then_accuses_nobody() -> None:
    after_ms = [*[10.0] * 8, 19.0, 10.0]
    limits, beside, after = quiet_after([21.0, 30.0], [22.0], after_ms)
    assert limits.gbps == pytest.approx((40 << 30) / QUICK_MS / 1e6)
    assert (limits.shared, beside, after) == (True, 10, 9)


@pytest.mark.parametrize(
    ("found", "status"),
    [(Status.PASSED, Status.TAMPERED), (Status.WRONG_VALUES, Status.WRONG_VALUES)],
)
def test_outputs_that_change_after_the_return_are_named(found: Status, status: Status) -> None:
    changed = unsettled(Verified(status=found, reason="3 of 4 are wrong"))
    assert changed.status is status
    assert "went on changing after forward had returned" in changed.reason


def test_another_failure_is_explained_by_itself() -> None:
    shape = Verified(status=Status.WRONG_SHAPE, reason="(3,) for (4,)")
    assert unsettled(shape) == shape
