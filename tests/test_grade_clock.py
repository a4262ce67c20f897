"""The clock beside the work, on a GPU against CUPTI's time stamps."""

import time
from collections.abc import Callable
from statistics import median

import pytest

from kernelgen.grading.timing.clock import Clock, _writes_in

torch = pytest.importorskip("torch")

_CALLS = 20
# Bounds that the two clocks keep.
_RELATIVE, _ABSOLUTE_US = 0.02, 0.3


def test_on_the_cpu_the_wall_clock_around_the_call_counts() -> None:
    clock = Clock("cpu")
    call = clock.call(lambda: time.sleep(0.02))
    assert 20.0 <= call.finish() == call.host_ms < 200.0
    clock.wait()


def test_a_gpu_is_kept_busy_for_longer_than_the_quickest_call_took_to_enqueue() -> None:
    clock = Clock("cpu")
    clock._least_host_ms = {"quick": 0.01, "slow": 3.0, "endless": 1e9}  # noqa: SLF001
    busy_ms = {name: clock._busy_ms(name) for name in ("", "quick", "slow", "endless")}  # noqa: SLF001
    assert busy_ms == {"": 0.0, "quick": 0.02, "slow": 6.0, "endless": 60.0}
    # 1 GB at 8 TB/s are 0.134 ms.
    assert [_writes_in(ms, 1 << 30) for ms in (0.0, 0.02, 6.0, 20.0)] == [1, 1, 45, 150]


def test_where_the_profiler_sees_no_gpu_nothing_is_told_of_it() -> None:
    from kernelgen.grading.kernels.tracing import busy_us_of

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    asked: list[object] = []
    assert busy_us_of(lambda: asked.append(1), lambda called: called(), 3) == ()
    assert asked == [1] * 3


@pytest.mark.gpu
@pytest.mark.parametrize(
    "elements",
    [1 << 10, 10_000_000, 100_000_000, 2_500_000_000],
    ids=["2us", "20us", "200us", "5ms"],
)
def test_events_and_cupti_agree(
    elements: int, record_property: Callable[[str, object], None]
) -> None:
    from kernelgen.grading.kernels.tracing import busy_us_of
    from kernelgen.grading.oracle.baselines import Baselines

    clock = Clock("cuda")
    events_us = Baselines(clock, threads=1).measure_events()
    assert events_us is not None
    x, y = (torch.ones(elements, device="cuda") for _ in range(2))

    def function() -> object:
        return torch.mul(x, 2.0, out=y)

    by_events = [clock.call(function).finish() * 1e3 - events_us for _ in range(_CALLS)]
    by_cupti = busy_us_of(function, lambda marked: clock.call(marked).finish(), _CALLS)
    events, cupti = median(by_events), median(by_cupti)
    for name, value in (("events", events), ("CUPTI", cupti), ("two events", events_us)):
        record_property(f"{name}, us", round(value, 3))
    assert events == pytest.approx(cupti, rel=_RELATIVE, abs=_ABSOLUTE_US)


@pytest.mark.gpu
def test_a_call_that_takes_long_to_enqueue_is_not_timed_with_gaps() -> None:
    clock = Clock("cuda")
    x = torch.ones(1 << 10, device="cuda")

    def function() -> None:
        for _ in range(3):
            x.mul_(1.0)
            time.sleep(0.001)

    times = [clock.call(function, subject="slow host").finish() for _ in range(6)]
    # Three short kernels; the first call was not known to need so long a head start.
    assert median(times[1:]) < 0.05


@pytest.mark.gpu
def test_on_request_a_call_begins_on_an_idle_device() -> None:
    clock = Clock("cuda")
    x = torch.ones(1 << 10, device="cuda")

    def function() -> None:
        time.sleep(0.001)
        x.mul_(1.0)

    times = {}
    for clock.begins_idle in (False, True):
        times[clock.begins_idle] = median(clock.call(function).finish() for _ in range(6))
    assert times[False] < 0.05
    assert times[True] > 1.0
