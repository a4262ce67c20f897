"""How many samples are taken, and what is made of them, on times that a test invents."""

import time

import msgspec
import pytest
from calibrations import calibration

from kernelgen.grading.judged import Judged
from kernelgen.grading.limit import Work
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.quiet import MemoryLimits
from kernelgen.grading.times import Confirmation
from kernelgen.grading.timing import Traffic, require_possible, summarise, take_samples
from kernelgen.grading.verdict import Status

TRAFFIC = Traffic(minimal_bytes=2_000_000, method="invented")
CONFIRMED = Confirmation(
    claimed_ms=0.4, at_most_ms=0.5, calls=4, batches=3, overhead_ms=0.2, outputs="in place"
)


class Blocks:
    """Invented blocks that remember the order asked for, and a clock that they advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts_s: float = 0.0) -> None:
        self.orders: list[list[str]] = []
        self.lasts_s = lasts_s
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def __call__(self, subjects: list[str]) -> dict[str, float]:
        """Return the block's number as everybody's time."""
        self.orders.append(subjects)
        self.now_s += self.lasts_s
        return {subject: float(len(self.orders)) for subject in subjects}


def options(least: int, most: int, budget_s: float) -> GradeOptions:
    return GradeOptions(min_samples=least, max_samples=most, timing_budget_s=budget_s)


def test_samples_are_paired_and_the_warm_up_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(monkeypatch)
    samples = take_samples(blocks, ("eager",), options(3, 5, 60.0), lambda _: None)
    assert samples == {"candidate": [3, 4, 5, 6, 7], "eager": [3, 4, 5, 6, 7]}


@pytest.mark.parametrize(("lasts_s", "count"), [(1.0, 4), (0.1, 29)])
def test_a_spent_budget_ends_sampling_but_not_before_the_least(
    monkeypatch: pytest.MonkeyPatch, lasts_s: float, count: int
) -> None:
    blocks = Blocks(monkeypatch, lasts_s)
    samples = take_samples(blocks, (), options(4, 1000, 3.05), lambda _: None)
    assert len(samples["candidate"]) == count


def test_a_very_slow_candidate_is_timed_three_times_after_one_call_to_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = Blocks(monkeypatch, lasts_s=20.0)
    samples = take_samples(blocks, ("eager",), options(10, 50, 5.0), lambda _: None)
    assert samples["candidate"] == [2, 3, 4]


def test_every_order_of_three_subjects_comes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(monkeypatch)
    take_samples(blocks, ("eager", "compile"), options(200, 200, 60.0), lambda _: None)
    assert len({tuple(order) for order in blocks.orders}) == 6


def test_progress_is_told_every_ten_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    take_samples(Blocks(monkeypatch), (), options(25, 25, 60.0), told.append)
    assert told == ["timing", "timing: 10 samples", "timing: 20 samples"]


@pytest.mark.parametrize(
    ("change", "quoted_ms", "warns"),
    [
        ({}, 1.0, False),
        ({"claimed_ms": 1.5}, 1.5, False),
        ({"at_most_ms": 9.0}, 1.0, False),
        ({"at_most_ms": 3.0, "host_bound": True}, 3.0, True),
        ({"at_most_ms": 3.0, "unconfirmed": True}, 3.0, True),
        ({"at_most_ms": 0.5, "unconfirmed": True}, 1.0, True),
    ],
)
def test_nobody_gains_by_being_hard_to_time(
    change: dict[str, float | bool], quoted_ms: float, *, warns: bool
) -> None:
    samples = {"candidate": [1.0, 1.0, 1.0], "eager": [6.0, 6.0, 6.0]}
    confirmed = msgspec.structs.replace(CONFIRMED, **change)
    timing, warnings = summarise(samples, TRAFFIC, confirmed)
    assert timing.candidate_ms == pytest.approx(quoted_ms)
    assert timing.speedup["eager"].median == pytest.approx(6.0 / quoted_ms)
    assert any("calls in a row" in warning for warning in warnings) == warns


@pytest.mark.parametrize(("at_most_ms", "status"), [(0.2, None), (2.0, Status.TAMPERED)])
def test_a_time_under_the_floor_has_to_be_borne_out(
    at_most_ms: float, status: Status | None
) -> None:
    """2 GB at 1000 GB/s take 2 ms; a problem that does not need them all may take less."""
    limits = MemoryLimits(gbps=1000.0, cache_bytes=0)
    traffic = Traffic(minimal_bytes=2_400_000_000, method="", limits=limits)
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=at_most_ms + 1.0)
    samples = {"candidate": [1.0, 1.0, 1.0]}
    if status is None:
        _, warnings = summarise(samples, traffic, confirmed)
        assert any("does not need all of its inputs" in warning for warning in warnings)
    else:
        with pytest.raises(Judged) as judged:
            summarise(samples, traffic, confirmed)
        assert judged.value.status is status


@pytest.mark.parametrize(("at_most_ms", "tampered"), [(0.1, False), (2.0, True)])
def test_a_time_under_that_of_declared_operations_has_to_be_borne_out(
    at_most_ms: float, *, tampered: bool
) -> None:
    """1e12 operations at 780 TFLOP/s, a fifth faster than measured, take 1.07 ms."""
    work = Work(minimal_bytes=1000, flops=10**12, flops_declared=True)
    traffic = Traffic(minimal_bytes=1000, method="", work=work, calibration=calibration())
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=at_most_ms)
    samples = {"candidate": [0.1, 0.1, 0.1]}
    if tampered:
        with pytest.raises(Judged, match="the 1000000000000 operations that the problem decl"):
            summarise(samples, traffic, confirmed)
        return
    timing, warnings = summarise(samples, traffic, confirmed)
    assert any("declares more than is needed" in warning for warning in warnings)
    assert timing.limit is not None
    assert timing.limit.source == "declared"
    counted = msgspec.structs.replace(work, flops_declared=False)
    traffic = msgspec.structs.replace(traffic, work=counted)
    _, warnings = summarise(samples, traffic, msgspec.structs.replace(CONFIRMED, at_most_ms=2.0))
    assert warnings == ()


def test_the_limit_is_at_the_time_that_is_quoted() -> None:
    work = Work(minimal_bytes=4_000_000_000)
    traffic = Traffic(minimal_bytes=1, method="", work=work, calibration=calibration())
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=4.0, host_bound=True)
    timing, _ = summarise({"candidate": [2.0, 2.0, 2.0]}, traffic, confirmed)
    assert timing.limit is not None
    assert (timing.limit.limit_ms, timing.limit.fraction) == (1.0, 0.25)


def test_without_rates_there_is_no_limit() -> None:
    traffic = msgspec.structs.replace(TRAFFIC, work=Work(minimal_bytes=2_000_000))
    timing, _ = summarise({"candidate": [1.0, 1.0, 1.0]}, traffic, CONFIRMED)
    assert timing.limit is None


def test_medians_speedups_and_bandwidth() -> None:
    samples = {"candidate": [1.0, 1.0, 1.0], "eager": [2.0, 2.0, 2.0]}
    timing, warnings = summarise(samples, TRAFFIC, CONFIRMED)
    assert (timing.candidate_ms, timing.eager_ms, timing.compile_ms) == (1.0, 2.0, None)
    assert timing.speedup["eager"].median == 2.0
    assert timing.gbps == pytest.approx(2.0)
    assert warnings == ()


def test_an_interval_that_says_nothing_is_warned_of() -> None:
    samples = {"candidate": [1.0] * 9, "eager": [0.1, 5.0, 1.0, 9.0, 0.2, 7.0, 0.1, 8.0, 1.0]}
    _, (warning,) = summarise(samples, TRAFFIC, CONFIRMED)
    assert "vary too much to say how the candidate compares with eager" in warning


@pytest.mark.parametrize("candidate", [[0.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [1e-8, 1e-8, 1e-8]])
def test_impossible_times_are_no_times(candidate: list[float]) -> None:
    with pytest.raises(Judged, match="less than it takes to call anything") as judged:
        require_possible({"candidate": candidate})
    assert judged.value.status is Status.TAMPERED
