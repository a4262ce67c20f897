"""One timed call, the same for the candidate and for every baseline.

Each call is cold: a write of at least twice the last-level cache goes before it. On a GPU that
write also keeps the device busy while the host enqueues the call, so that the two events around it
do not measure the host. On a CPU the wall clock is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import torch

# The clock is taken by reference before any candidate is imported: replacing time.perf_counter
# later changes nothing here.

# A CPU's last-level cache is not worth finding out: 64 MiB covers what a core can reach.
_HOST_FLUSH_BYTES = 64 << 20
# At 3 TB/s half a millisecond: more than a launch from Python takes to enqueue.
_MIN_DEVICE_FLUSH_BYTES = 1 << 30
# Work that does not wait for the inputs, however soon it begins, is to find none: more than it
# takes from here to the first launch of forward.
_WRITES_BEFORE = 4


class TimedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a call returned, and how long it took.

    Attributes:
        result: what the callable returned; on a GPU its work is still being done.
        finish: waits for the device and returns the call's ms.
        host_ms: wall time until the call returned.
    """

    result: Any
    finish: Callable[[], float]
    host_ms: float


class Clock:
    """Times calls on a device.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._flush: torch.Tensor | None = None
        self._driver: ctypes.CDLL | None = None

    def method(self) -> str:
        """Say in one line how times are taken."""
        if self._device == "cuda":
            return (
                "cuda events on the current stream around each call, caches overwritten before it, "
                "new inputs each call, subjects interleaved in random order, medians"
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
        cold: bool = True,
    ) -> TimedCall:
        """Run a function once.

        Args:
            function: what is timed.
            feed: gives the inputs their values. On a GPU that is enqueued on the current stream,
                and stands there between two long writes when the function begins: work that is
                not ordered after the current stream finds the inputs without their values.
            cold: overwrite the caches first; on a GPU that is always done.
        """
        if self._device == "cuda":
            return self._call_cuda(function, feed)
        return self._call_cpu(function, feed, cold=cold)

    def _call_cpu(
        self, function: Callable[[], Any], feed: Callable[[], None], *, cold: bool
    ) -> TimedCall:
        feed()
        if cold:
            self._buffer(_HOST_FLUSH_BYTES).fill_(1)
        start = perf_counter()
        result = function()
        elapsed_ms = (perf_counter() - start) * 1e3
        return TimedCall(result=result, finish=lambda: elapsed_ms, host_ms=elapsed_ms)

    def _call_cuda(self, function: Callable[[], Any], feed: Callable[[], None]) -> TimedCall:
        import torch

        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        before, after = (_event() for _ in range(2))
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
        buffer = self._buffer(max(2 * cache_bytes, _MIN_DEVICE_FLUSH_BYTES))
        torch.cuda.synchronize()
        # Lines that a call has marked as persisting would survive the writes. Now, because it
        # waits for the device.
        self._driver.cuCtxResetPersistingL2Cache()
        for _ in range(_WRITES_BEFORE):
            buffer.fill_(1)
        feed()
        buffer.fill_(2)
        before.record()
        start = perf_counter()
        result = function()
        host_ms = (perf_counter() - start) * 1e3
        after.record()

        def finish() -> float:
            torch.cuda.synchronize()
            return float(before.elapsed_time(after))

        return TimedCall(result=result, finish=finish, host_ms=host_ms)

    def _buffer(self, nbytes: int) -> torch.Tensor:
        import torch

        if self._flush is None:
            self._flush = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        return self._flush


def _event() -> torch.cuda.Event:
    import torch

    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event
