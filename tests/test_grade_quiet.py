"""A GPU that is left alone, and outputs that stay as they are."""

import pytest

from kernelgen.grading.judged import Judged
from kernelgen.grading.messages import Probed, Verified
from kernelgen.grading.quiet import require_quiet
from kernelgen.grading.settling import unsettled
from kernelgen.grading.verdict import Status


def probes(*times_ms: float) -> list[Probed]:
    return [Probed(elapsed_ms=ms, written_bytes=40 << 30, cache_bytes=50 << 20) for ms in times_ms]


def test_a_gpu_that_is_left_alone_tells_its_speed() -> None:
    limits = require_quiet(probes(11.0, 30.0, 10.2), probes(10.0, 10.1))
    assert limits.gbps == pytest.approx((40 << 30) / 10.0 / 1e6)
    assert limits.cache_bytes == 50 << 20


def test_a_gpu_that_is_busy_while_the_candidate_is_done_is_tampered_with() -> None:
    with pytest.raises(Judged, match="keeps the GPU busy") as judged:
        require_quiet(probes(21.0, 30.0), probes(10.0, 10.1))
    assert judged.value.status is Status.TAMPERED


def test_a_gpu_that_others_use_all_the_time_is_nobody_s_fault() -> None:
    assert require_quiet(probes(21.0, 30.0), probes(20.0)).gbps > 0


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
