"""A long write of the oracle's own: the measure of what else a device is doing."""

from itertools import pairwise
from time import perf_counter

import torch

from kernelgen.grading.timing.clock import Clock, timing_event
from kernelgen.grading.wire import messages as m

# At 3 TB/s about 10 ms: several time slices of a GPU that two processes share.
_WRITES = 100
_BYTES = 256 << 20
_LEAST_MS = 1e-6


class Probe:
    """Times the write, on the memory that it needs for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._memory: torch.Tensor | None = None

    def rest(self) -> None:
        """Let go of a GPU's memory, which others need; a CPU takes longer to make it anew."""
        if self._clock.device == "cuda":
            self._memory = None

    def look(self) -> m.Probed:
        """Time a write."""
        on_gpu = self._clock.device == "cuda"
        if self._memory is None:
            # Floats, as a calibration writes them: the fastest of torch's fills.
            floats = _BYTES // 4
            self._memory = torch.zeros(floats, dtype=torch.float32, device=self._clock.device)
        self._clock.wait()
        writes = _WRITES if on_gpu else 1
        marks = [timing_event() for _ in range(writes + 1)] if on_gpu else []
        start = perf_counter()
        for number in range(writes):
            if on_gpu:
                marks[number].record()
            self._memory.fill_(1.0)
        if on_gpu:
            marks[-1].record()
        self._clock.wait()
        elapsed_ms = (perf_counter() - start) * 1e3
        # Each is over within a turn on a GPU that others use too.
        quickest_ms = min((a.elapsed_time(b) for a, b in pairwise(marks)), default=elapsed_ms)
        return m.Probed(
            elapsed_ms=elapsed_ms,
            alone_ms=max(quickest_ms * writes, _LEAST_MS),
            written_bytes=_BYTES * writes,
            cache_bytes=torch.cuda.get_device_properties(0).L2_cache_size if on_gpu else 0,
        )
