"""One timed call, the same for the candidate and for every baseline.

Each call is cold: a write of at least twice the last-level cache goes before it. On a GPU writes
also keep the device busy until the host has enqueued the call, so that the two events around it do
not measure the host. On a CPU the wall clock is used.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

import msgspec
import torch

# The clock is taken by reference before any candidate is imported: replacing time.perf_counter
# later changes nothing here.

# A CPU's last-level cache is not worth finding out: 64 MiB covers what a core can reach.
_HOST_FLUSH_BYTES = 64 << 20
# The threads of an OpenMP library spin for a while after their work. After the flush and after the
# feeding, torch's would take a core from those of a candidate that brings a library of its own, and
# their spinning would be told as processor time of a call that is traced.
_REST_S = 0.01
_MIN_DEVICE_FLUSH_BYTES = 1 << 30
# Work that does not wait for the inputs, however soon it begins, is to find none: more than it
# takes from here to the first launch of forward.
_WRITES_BEFORE = 4
# The device is kept busy for this many times what the quickest call so far took to enqueue: a call
# of a Python function takes now longer, now shorter.
_HEAD_START = 2.0
# One launch keeps it busy beyond these writes, as a device's queue holds about a thousand. A call
# with more of them, or that takes longer to enqueue than all this, is bound by the host.
_LONGEST_WRITES_MS, _LONGEST_WAIT_MS = 20.0, 60.0
# Of a multiprocessor's clock: no device's is faster.
_MOST_CYCLES_PER_MS = 3_000_000
_sleep: Callable[[int], None] = torch.cuda._sleep  # noqa: SLF001 - by reference, like the clock
# Of any device, in 2026: a write takes at least so long.
_FASTEST_BYTES_PER_MS = 8e9


class TimedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a call, and how long it took.

    Attributes:
        finish: waits for the device and returns the call's ms.
        host_ms: wall time until the call returned.
    """

    result: Any
    finish: Callable[[], float]
    host_ms: float


class Clock:
    """Times calls on a device.

    Attributes:
        wait: for the device, if there is anything to wait for. Taken by reference like the clock.
        begins_idle: whether a GPU is idle when a call begins: its time has what it takes to launch.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.begins_idle = False
        self._flush: torch.Tensor | None = None
        self._least_host_ms: dict[str, float] = {}
        self._driver: ctypes.CDLL | None = None

    def method(self) -> str:
        """Say in one line how times are taken."""
        if self.device == "cuda":
            state = "idle when it begins" if self.begins_idle else "kept busy while it is enqueued"
            return (
                f"cuda events on the current stream around each call, the device {state}, caches "
                "overwritten before it, new inputs each call, subjects interleaved in random "
                "order, medians"
            )
        return (
            "wall clock around each call, caches overwritten before it, new inputs each call, "
            "subjects interleaved in random order, medians"
        )

    def call(
        self,
        function: Callable[[], Any],
        feed: Callable[[], None] = lambda: None,
        *,
        measured: bool = True,
        subject: str = "",
    ) -> TimedCall:
        """Run a function once.

        Args:
            function: what is timed.
            feed: gives the inputs their values. On a GPU that is enqueued on the current stream,
                and stands there between two long writes when the function begins: work that is
                not ordered after the current stream finds the inputs without their values.
            measured: something that it takes counts, its time or its processor time; on a CPU the
                caches are then overwritten first, and it begins on cores that are at rest. On a
                GPU the caches are always overwritten.
            subject: a name for what is timed, where one clock times several functions.
        """
        if self.device == "cuda":
            return self._call_cuda(function, feed, subject)
        return self._call_cpu(function, feed, measured=measured)

    def _call_cpu(
        self, function: Callable[[], Any], feed: Callable[[], None], *, measured: bool
    ) -> TimedCall:
        feed()
        if measured:
            self._buffer(_HOST_FLUSH_BYTES).fill_(1)
            sleep(_REST_S)
        start = perf_counter()
        result = function()
        elapsed_ms = (perf_counter() - start) * 1e3
        return TimedCall(result=result, finish=lambda: elapsed_ms, host_ms=elapsed_ms)

    def _call_cuda(
        self, function: Callable[[], Any], feed: Callable[[], None], subject: str
    ) -> TimedCall:
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        before, after = (timing_event() for _ in range(2))
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
        flush_bytes = max(2 * cache_bytes, _MIN_DEVICE_FLUSH_BYTES)
        buffer = self._buffer(flush_bytes)
        busy_ms = self._busy_ms(subject)
        writes = _writes_in(min(busy_ms, _LONGEST_WRITES_MS), flush_bytes)
        self.wait()
        # Lines that a call has marked as persisting would survive the writes. Now, because it
        # waits for the device.
        self._driver.cuCtxResetPersistingL2Cache()
        for _ in range(_WRITES_BEFORE):
            buffer.fill_(1)
        if busy_ms > _LONGEST_WRITES_MS:
            _sleep(round((busy_ms - _LONGEST_WRITES_MS) * _MOST_CYCLES_PER_MS))
        feed()
        for _ in range(writes):
            buffer.fill_(2)
        if self.begins_idle:
            self.wait()
        before.record()
        start = perf_counter()
        result = function()
        host_ms = (perf_counter() - start) * 1e3
        after.record()
        self._least_host_ms[subject] = min(host_ms, self._least_host_ms.get(subject, host_ms))

        def finish() -> float:
            self.wait()
            return float(before.elapsed_time(after))

        return TimedCall(result=result, finish=finish, host_ms=host_ms)

    def _busy_ms(self, subject: str) -> float:
        """Return how long the device is kept busy while a call of this subject is enqueued.

        The quickest call so far counts, not the last: one that waits for the device takes the
        longer, the longer the device is kept busy.
        """
        return min(_HEAD_START * self._least_host_ms.get(subject, 0.0), _LONGEST_WAIT_MS)

    def _buffer(self, nbytes: int) -> torch.Tensor:
        if self._flush is None:
            self._flush = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return self._flush


def _writes_in(busy_ms: float, write_bytes: int) -> int:
    """Return how many writes keep any device busy for so long."""
    return max(1, math.ceil(busy_ms * _FASTEST_BYTES_PER_MS / write_bytes))


def timing_event() -> torch.cuda.Event:
    """Return an event that keeps its time."""
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event
