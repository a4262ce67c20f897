"""Whether traced calls are as quick as timed ones: with batches of invented lengths."""

import pytest

from kernelgen.grading.timing.traced import trace_as_timed
from kernelgen.grading.timing.waits import BatchTime, Claim, Waits
from kernelgen.grading.wire.trace import Trace, Work

OVERHEAD_MS, GAUGE_MS = 0.3, 10.0


class Machine:
    """Runs traced batches of a candidate that takes `call_ms` a call, of which so many ran."""

    def __init__(
        self, call_ms: float, *, launches: int = 1, busy_us: float = 0.0, missing: str = ""
    ) -> None:
        self.call_ms, self.launches, self.busy_us = call_ms, launches, busy_us
        self.missing = missing
        self.slower, self.quick_one = 1.0, 0
        self.calls: list[int] = []

    def __call__(
        self, calls: int, *, in_place: bool, control_calls: int
    ) -> tuple[BatchTime, Trace]:
        """Invent a batch and what was recorded of it."""
        self.calls.append(calls)
        call_ms = self.call_ms if len(self.calls) != self.quick_one else 1.0
        batch = BatchTime(
            wait_ms=call_ms * calls * self.slower + OVERHEAD_MS,
            control_wait_ms=control_calls + OVERHEAD_MS,
            control_ms=control_calls,
            control_calls=control_calls,
            gauge_ms=GAUGE_MS * self.slower,
            in_place=in_place,
            at_once=True,
        )
        work = Work(name="own", kind="kernel", count=self.launches * calls, time_us=1.0)
        trace = Trace(works=(work,), busy_us=self.busy_us * calls, missing=self.missing)
        return batch, trace


def traced(
    device: str,
    machine: Machine,
    call_ms: float = 1.0,
    *,
    calls: int = 10,
    device_ms: float | None = None,
) -> Trace | str:
    """Trace batches of a candidate whose calls take so long in others."""
    claim = Claim(
        device_ms=device_ms or call_ms,
        host_ms=0.0,
        gauge_ms=GAUGE_MS,
        call_bytes=1 << 20,
        batch_bytes=1 << 30,
    )
    expected = Waits(device, claim, calls)
    return trace_as_timed(expected, call_ms, machine, in_place=True, control_calls=calls)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_batch_that_is_as_quick_counts_at_once(device: str) -> None:
    machine = Machine(1.0)
    found = traced(device, machine)

    assert isinstance(found, Trace)
    assert found.works[0].count == 1
    assert machine.calls == [1, 10], "one call to see how long it takes, and one batch"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_calls_that_are_slower_where_they_are_traced_are_refused(device: str) -> None:
    found = traced(device, Machine(6.0))

    assert "what was traced is not what was timed" in str(found)


def test_threads_that_mostly_lose_their_turns_on_a_busy_cpu_have_one_quick_batch() -> None:
    machine = Machine(20.0)
    machine.quick_one = 30

    assert isinstance(traced("cpu", machine), Trace)


@pytest.mark.parametrize(("device", "most"), [("cpu", 60), ("cuda", 6)])
@pytest.mark.parametrize("call_ms", [0.0, 1e-3])
def test_calls_that_take_next_to_nothing_are_not_traced_for_ever(
    device: str, most: int, call_ms: float
) -> None:
    machine = Machine(20.0)

    assert isinstance(traced(device, machine, call_ms), str)
    assert len(machine.calls) == 1 + most


def test_a_batch_of_slow_calls_does_not_take_for_ever() -> None:
    machine = Machine(500.0)

    assert isinstance(traced("cuda", machine, 0.02, calls=64), str)
    assert set(machine.calls) == {1}


def test_what_a_profiler_takes_for_many_launches_is_no_difference() -> None:
    slowed = Machine(1.0 + 400 * 0.004, launches=400)

    assert isinstance(traced("cuda", slowed), Trace)


def test_load_that_came_meanwhile_is_no_difference() -> None:
    machine = Machine(1.0)
    machine.slower = 3.0

    assert isinstance(traced("cuda", machine), Trace)


def test_kernels_that_keep_a_gpu_busy_for_longer_than_is_quoted_are_refused() -> None:
    """Calls that are bound by their Python leave room for a slower kernel in every wait."""
    assert isinstance(traced("cuda", Machine(1.0, busy_us=55.0), device_ms=0.05), Trace)
    assert isinstance(traced("cuda", Machine(1.0, busy_us=700.0), device_ms=0.05), str)


def test_batches_that_cannot_be_traced_are_no_evidence() -> None:
    found = traced("cpu", Machine(1.0, missing="no file"))

    assert found == "a batch of its calls could not be traced: no file"
