"""A GPU that is left alone, and outputs that stay as they are."""

import pytest

from kernelgen.grading.judged import Judged
from kernelgen.grading.messages import Probed, Verified
from kernelgen.grading.quiet import MemoryLimits, require_quiet
from kernelgen.grading.settling import unsettled
from kernelgen.grading.verdict import Status


def probed(elapsed_ms: float) -> Probed:
    return Probed(elapsed_ms=elapsed_ms, written_bytes=40 << 30, cache_bytes=50 << 20)


def compared(during_ms: list[float], alone_ms: list[float]) -> tuple[MemoryLimits, int]:
    """Return what comes of it, and how many of the writes alone were asked for."""
    writes = iter(alone_ms)
    limits = require_quiet([probed(ms) for ms in during_ms], lambda: probed(next(writes)), idle)
    return limits, len(alone_ms) - len(list(writes))


def idle(seconds: float) -> None:
    assert seconds > 0


def test_a_gpu_that_is_left_alone_tells_its_speed() -> None:
    limits, asked = compared([11.0, 30.0, 10.2], [10.0, 10.1, 10.3, 10.0])
    assert limits.gbps == pytest.approx((40 << 30) / 10.0 / 1e6)
    assert (limits.cache_bytes, limits.shared, asked) == (50 << 20, False, 3)


def test_a_gpu_that_is_busy_while_the_candidate_is_done_is_tampered_with() -> None:
    with pytest.raises(Judged, match=r"21 ms beside it, and at most 10\.1 ms in 20") as judged:
        compared([21.0, 30.0], [10.0, 10.1] * 10)
    assert judged.value.status is Status.TAMPERED


def test_a_gpu_that_others_use_all_the_time_is_nobody_s_fault() -> None:
    limits, _ = compared([21.0, 30.0], [20.0] * 3)
    assert (limits.gbps > 0, limits.shared) == (True, False)


def test_a_gpu_that_others_use_now_and_then_accuses_nobody() -> None:
    limits, asked = compared([21.0, 30.0], [10.0] * 8 + [19.0] + [10.0] * 11)
    assert limits.gbps == pytest.approx((40 << 30) / 10.0 / 1e6)
    assert (limits.shared, asked) == (True, 9)


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
