"""How many samples are taken, and what is made of them, on times that a test invents."""

import time

import msgspec
import pytest
from calibrations import calibration

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.timing.limit import Work
from kernelgen.grading.timing.quiet import MemoryLimits
from kernelgen.grading.timing.sampling import TimedBlock, take_samples
from kernelgen.grading.timing.summary import Observed, Traffic, require_possible, summarise
from kernelgen.grading.timing.times import Confirmation
from kernelgen.grading.verdict import Judged, Status

TRAFFIC = Traffic(work=Work(minimal_bytes=2_000_000), method="invented")
CONFIRMED = Confirmation(
    claimed_ms=0.4, at_most_ms=0.5, calls=4, batches=3, overhead_ms=0.2, outputs="in place"
)


class Blocks:
    """Invented blocks that remember the order asked for, and a clock that they advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts_s: float = 0.0) -> None:
        self.orders: list[list[str]] = []
        self.throttled: dict[int, tuple[str, ...]] = {}
        self.lasts_s = lasts_s
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def __call__(self, subjects: list[str]) -> TimedBlock:
        """Return the block's number as everybody's time."""
        self.orders.append(subjects)
        self.now_s += self.lasts_s
        number = len(self.orders)
        return TimedBlock(
            times_ms={subject: float(number) for subject in subjects},
            throttled=self.throttled.get(number, ()),
        )


def options(least: int, most: int, budget_s: float, interval: float = -1.0) -> GradeOptions:
    """Return options; by default no interval is narrow enough."""
    return GradeOptions(
        min_samples=least, max_samples=most, timing_budget_s=budget_s, interval=interval
    )


def test_samples_are_paired_and_the_warm_up_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(monkeypatch)
    samples = take_samples(blocks, ("eager",), options(3, 5, 60.0), lambda _: None).samples
    assert samples == {"candidate": [3, 4, 5, 6, 7], "eager": [3, 4, 5, 6, 7]}


@pytest.mark.parametrize(("lasts_s", "count"), [(1.0, 4), (0.1, 29)])
def test_a_spent_budget_ends_sampling_but_not_before_the_least(
    monkeypatch: pytest.MonkeyPatch, lasts_s: float, count: int
) -> None:
    blocks = Blocks(monkeypatch, lasts_s)
    samples = take_samples(blocks, (), options(4, 1000, 3.05), lambda _: None).samples
    assert len(samples["candidate"]) == count


def test_a_very_slow_candidate_is_timed_three_times_after_one_call_to_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = Blocks(monkeypatch, lasts_s=20.0)
    samples = take_samples(blocks, ("eager",), options(10, 50, 5.0), lambda _: None).samples
    assert samples["candidate"] == [2, 3, 4]


def test_blocks_in_which_the_device_was_throttled_are_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks, told = Blocks(monkeypatch), list[str]()
    blocks.throttled = {4: ("thermal slowdown",), 5: ("thermal slowdown",)}
    taken = take_samples(blocks, ("eager",), options(3, 3, 60.0), told.append)
    assert (taken.samples["eager"], taken.repeated_blocks) == ([3, 6, 7], 2)
    assert told == ["timing", *["timing: again, thermal slowdown"] * 2]


def test_what_disturbed_blocks_that_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(monkeypatch)
    blocks.throttled = {1: ("other work",), 4: ("heat",)}
    assert take_samples(blocks, (), options(3, 3, 60.0), lambda _: None).disturbed == ()
    blocks = Blocks(monkeypatch)
    blocks.throttled = dict.fromkeys(range(100), ("other work",))
    assert take_samples(blocks, (), options(3, 3, 60.0), lambda _: None).disturbed == (
        "other work",
    )


def test_a_device_that_stays_throttled_is_timed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(monkeypatch)
    blocks.throttled = dict.fromkeys(range(100), ("power brake",))
    taken = take_samples(blocks, (), options(3, 3, 60.0), lambda _: None)
    assert (len(taken.samples["candidate"]), taken.repeated_blocks) == (3, 10)


@pytest.mark.parametrize(
    ("interval", "baselines", "count"),
    [(0.005, ("eager",), 10), (0.0, ("eager",), 50), (0.005, (), 50)],
)
def test_sampling_ends_when_the_speedups_are_known_well_enough(
    monkeypatch: pytest.MonkeyPatch, interval: float, baselines: tuple[str, ...], count: int
) -> None:
    """Invented times are the same for both, so that the interval is as narrow as can be."""
    asked = options(10, 50, 60.0, interval)
    taken = take_samples(Blocks(monkeypatch), baselines, asked, lambda _: None)
    assert len(taken.samples["candidate"]) == count


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
        ({"at_least_ms": 0.9}, 1.0, False),
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
    timing, warnings = summarise(samples, TRAFFIC, confirmed, Observed())
    assert timing.candidate_ms == pytest.approx(quoted_ms)
    assert timing.speedup["eager"].median == pytest.approx(6.0 / quoted_ms)
    assert any("calls in a row" in warning for warning in warnings) == warns


def test_no_time_is_quoted_below_what_the_supervisor_s_clock_bears_out() -> None:
    samples = {"candidate": [1.0, 1.0, 1.0], "eager": [6.0, 6.0, 6.0]}
    borne_out = msgspec.structs.replace(CONFIRMED, claimed_ms=1.0, at_most_ms=1.3, at_least_ms=1.2)
    timing, warnings = summarise(samples, TRAFFIC, borne_out, Observed())
    assert timing.candidate_ms == pytest.approx(1.2)
    assert timing.speedup["eager"].median == pytest.approx(5.0)
    assert any("no less than 1.2 ms a call" in warning for warning in warnings)


@pytest.mark.parametrize(("at_most_ms", "status"), [(0.2, None), (2.0, Status.TAMPERED)])
def test_a_time_under_the_floor_has_to_be_borne_out(
    at_most_ms: float, status: Status | None
) -> None:
    """2 GB at 1000 GB/s take 2 ms; a problem that does not need them all may take less."""
    limits = MemoryLimits(gbps=1000.0, cache_bytes=0)
    traffic = Traffic(work=Work(minimal_bytes=2_400_000_000), method="", limits=limits)
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=at_most_ms + 1.0)
    samples = {"candidate": [1.0, 1.0, 1.0]}
    if status is None:
        _, warnings = summarise(samples, traffic, confirmed, Observed())
        assert any("does not need all of its inputs" in warning for warning in warnings)
    else:
        with pytest.raises(Judged) as judged:
            summarise(samples, traffic, confirmed, Observed())
        assert judged.value.status is status


def test_one_slow_measurement_makes_no_kernel_impossible() -> None:
    """On an H200, the oracle wrote at 3.28 TB/s where copies take 4.3; GroupNorm took 3.72 ms."""
    limits = MemoryLimits(gbps=3280.0, cache_bytes=50 << 20)
    traffic = Traffic(work=Work(minimal_bytes=15_032_386_048), method="", limits=limits)
    samples = {"candidate": [3.72, 3.72, 3.72]}
    confirmed = msgspec.structs.replace(CONFIRMED, claimed_ms=3.72, at_most_ms=4.2)
    with pytest.raises(Judged, match=r"takes 3\.81 ms on this device"):
        summarise(samples, traffic, confirmed, Observed())
    known = msgspec.structs.replace(traffic, calibration=calibration(copy_gbps=4300.0))
    timing, warnings = summarise(samples, known, confirmed, Observed())
    assert timing.candidate_ms == pytest.approx(3.72)
    assert not warnings


def test_the_events_own_share_is_taken_off_every_time() -> None:
    samples = {"candidate": [0.010, 0.012, 0.011], "eager": [0.030, 0.031, 0.032]}
    claimed = msgspec.structs.replace(CONFIRMED, claimed_ms=0.011, at_most_ms=0.02)
    timing, _ = summarise(samples, TRAFFIC, claimed, Observed(events_us=2.0))
    assert timing.candidate_ms == pytest.approx(0.009)
    assert timing.eager_ms == pytest.approx(0.029)
    assert timing.samples["candidate"] == pytest.approx((0.008, 0.010, 0.009))


def test_a_time_of_calls_in_a_row_has_no_events_in_it() -> None:
    samples = {"candidate": [0.010, 0.012, 0.011]}
    bound = msgspec.structs.replace(CONFIRMED, at_most_ms=0.2, host_bound=True)
    timing, _ = summarise(samples, TRAFFIC, bound, Observed(events_us=2.0))
    assert timing.candidate_ms == pytest.approx(0.2)


def test_who_takes_the_host_longer_than_the_device_is_host_bound() -> None:
    samples = {"candidate": [1.0, 1.1, 1.2], "eager": [2.0, 2.1, 2.2], "compile": [1.0, 1.0, 1.0]}
    # The candidate's quoted time is longer than its host's; the device's is not.
    claimed = msgspec.structs.replace(CONFIRMED, claimed_ms=1.1, at_most_ms=1.5, at_least_ms=1.5)
    seen = Observed(host_ms={"candidate": [1.3] * 3, "eager": [1.9] * 3})
    timing, _ = summarise(samples, TRAFFIC, claimed, seen)
    assert timing.candidate_ms == pytest.approx(1.5)
    assert timing.host_bound == ("candidate",)


def test_what_was_seen_beside_the_times_is_told_of_each_subject() -> None:
    samples = {"candidate": [1.0, 1.0, 1.1, 9.0], "eager": [2.0, 2.0, 2.1, 2.0]}
    observed = Observed(
        what={"candidate": "ModelNew", "eager": "the reference"},
        host_ms={"candidate": [0.1, 0.2, 0.3]},
        events_us=0.0,
    )
    timing, _ = summarise(samples, TRAFFIC, CONFIRMED, observed)
    candidate, eager = timing.subjects["candidate"], timing.subjects["eager"]
    assert (candidate.what, candidate.host_ms, timing.events_us) == ("ModelNew", 0.2, 0.0)
    assert candidate.quartiles_ms == pytest.approx((1.0, 3.075))
    assert (eager.what, eager.host_ms) == ("the reference", None)


@pytest.mark.parametrize(("at_most_ms", "tampered"), [(0.1, False), (2.0, True)])
def test_a_time_under_that_of_declared_operations_has_to_be_borne_out(
    at_most_ms: float, *, tampered: bool
) -> None:
    """1e12 operations at 780 TFLOP/s, a fifth faster than measured, take 1.07 ms."""
    work = Work(minimal_bytes=1000, flops=10**12, flops_declared=True)
    traffic = Traffic(method="", work=work, calibration=calibration())
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=at_most_ms)
    samples = {"candidate": [0.1, 0.1, 0.1]}
    if tampered:
        with pytest.raises(Judged, match="the 1000000000000 operations that the problem decl"):
            summarise(samples, traffic, confirmed, Observed())
        return
    timing, warnings = summarise(samples, traffic, confirmed, Observed())
    assert any("declares more than is needed" in warning for warning in warnings)
    assert timing.limit is not None
    assert timing.limit.source == "declared"
    counted = msgspec.structs.replace(work, flops_declared=False)
    traffic = msgspec.structs.replace(traffic, work=counted)
    _, warnings = summarise(
        samples, traffic, msgspec.structs.replace(CONFIRMED, at_most_ms=2.0), Observed()
    )
    assert warnings == ()


def test_the_limit_is_at_the_time_that_is_quoted() -> None:
    work = Work(minimal_bytes=4_000_000_000)
    traffic = Traffic(method="", work=work, calibration=calibration())
    confirmed = msgspec.structs.replace(CONFIRMED, at_most_ms=4.0, host_bound=True)
    timing, _ = summarise({"candidate": [2.0, 2.0, 2.0]}, traffic, confirmed, Observed())
    assert timing.limit is not None
    assert (timing.limit.limit_ms, timing.limit.fraction) == (1.0, 0.25)


def test_without_rates_there_is_no_limit() -> None:
    traffic = msgspec.structs.replace(TRAFFIC, work=Work(minimal_bytes=2_000_000))
    timing, _ = summarise({"candidate": [1.0, 1.0, 1.0]}, traffic, CONFIRMED, Observed())
    assert timing.limit is None


def test_medians_speedups_and_bandwidth() -> None:
    samples = {"candidate": [1.0, 1.0, 1.0], "eager": [2.0, 2.0, 2.0]}
    timing, warnings = summarise(samples, TRAFFIC, CONFIRMED, Observed())
    assert (timing.candidate_ms, timing.eager_ms, timing.compile_ms) == (1.0, 2.0, None)
    assert timing.speedup["eager"].median == 2.0
    assert timing.gbps == pytest.approx(2.0)
    assert warnings == ()


def test_an_interval_that_says_nothing_is_warned_of() -> None:
    samples = {"candidate": [1.0] * 9, "eager": [0.1, 5.0, 1.0, 9.0, 0.2, 7.0, 0.1, 8.0, 1.0]}
    _, (warning,) = summarise(samples, TRAFFIC, CONFIRMED, Observed())
    assert "vary too much to say how the candidate compares with eager" in warning


@pytest.mark.parametrize("elapsed_ms", [0.0, -1.0, 1e-8])
def test_impossible_times_are_no_times(elapsed_ms: float) -> None:
    with pytest.raises(Judged, match="less than it takes to call anything") as judged:
        require_possible(elapsed_ms)
    assert judged.value.status is Status.TAMPERED
