"""Measure how fast a device moves memory and multiplies matrices, with torch, in this process.

Numbers are random: a device that multiplies zeros draws less power and clocks higher. Buffers are
far larger than any cache. On a GPU each piece of work lies between two events on the stream, and
the next is enqueued before the first is done; on a CPU it is the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from statistics import median
from time import perf_counter

import msgspec
import torch

from kernelgen.hardware.calibration import Calibration, MatrixFormat, MatrixRate, Spread
from kernelgen.hardware.device import ProbedGpu
from kernelgen.hardware.driver_probe import cuda_version
from kernelgen.hardware.identity import DeviceIdentity, cpu_identity, gpu_identity

ALL_FORMATS: tuple[MatrixFormat, ...] = ("fp32", "tf32", "bf16", "fp16")

_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# Two buffers or three matrices leave as much again to others.
_SHARE_OF_FREE = 0.4
_SMALLEST_COPY_BYTES = 16 << 20
_SMALLEST_MATRIX = 512
# A power of two, as are all sizes that are copied.
_PIECE_FLOATS = 1 << 20
_FEWEST = 3


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure.

    Attributes:
        copy_bytes: sizes of buffers to copy and to write to.
        matrix_size: rows and columns of the matrices.
        most: measurements of one kind.
        budget_s: of time for one kind, after which the fewest measurements do.
        warm_s: of work before the first measurement, so that clocks have risen.
    """

    copy_bytes: tuple[int, ...]
    matrix_size: int
    most: int
    budget_s: float
    warm_s: float


THOROUGH = {
    "cuda": Effort(
        copy_bytes=(1 << 30, 4 << 30),
        matrix_size=8192,
        most=20,
        budget_s=0.4,
        warm_s=0.1,
    ),
    "cpu": Effort(
        copy_bytes=(256 << 20, 1 << 30),
        matrix_size=2048,
        most=10,
        budget_s=0.4,
        warm_s=0.1,
    ),
}
# While somebody waits for a verdict. On H200s a copy of 1 GiB is a tenth slower in some places of
# the memory than in others, one of 4 GiB is not. The matrices are as large as when there is time:
# an H200's fp32 rate at 4096 is three quarters of that at 8192.
QUICK = {
    "cuda": Effort(copy_bytes=(4 << 30,), matrix_size=8192, most=5, budget_s=0.04, warm_s=0.01),
    "cpu": Effort(copy_bytes=(64 << 20,), matrix_size=768, most=3, budget_s=0.04, warm_s=0.0),
}


def identity_of(device: str) -> DeviceIdentity:
    """Return what torch's current device is, for the cache.

    Args:
        device: `cuda` or `cpu`.
    """
    if device == "cpu":
        return cpu_identity()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return gpu_identity(
        ProbedGpu(
            name=properties.name,
            sm_count=properties.multi_processor_count,
            memory_bytes=properties.total_memory,
            driver_version=cuda_version(),
        )
    )


def measure(
    device: str,
    effort: Effort,
    formats: tuple[MatrixFormat, ...],
    phase: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Measure a device's rates.

    Changes torch's setting for TF32 in matrix products; whoever needs it sets it again.

    Args:
        device: `cuda` or `cpu`.
        effort: how much to measure.
        formats: of matrix products to measure; a CPU has fp32 alone.
        phase: told what is measured next.

    Raises:
        MemoryError: less memory is free than the smallest measurement takes.
        RuntimeError: torch's, such as torch.OutOfMemoryError.
    """
    stopwatch = _Stopwatch(device, effort)
    sizes = _copy_sizes(effort.copy_bytes, _free_bytes(device))
    copies = {}
    for size in sizes:
        phase(f"copies and writes of {size / (1 << 20):.0f} MiB")
        copies[size], write = _memory_rates(size, device, stopwatch)
    best = max(copies, key=lambda size: copies[size].median)
    wanted = formats if device == "cuda" else tuple(form for form in formats if form == "fp32")
    matrix_size = _matrix_size(effort.matrix_size, _free_bytes(device)) if wanted else 0
    matrix = []
    for form in wanted:
        phase(f"{form} matrix products of {matrix_size} x {matrix_size}")
        rate = _matrix_rate(form, matrix_size, device, stopwatch)
        matrix.append(MatrixRate(format=form, flops_per_s=rate))
    return Calibration(
        device=identity_of(device),
        measured=datetime.now(timezone.utc).replace(microsecond=0),
        copy_gbps=copies[best],
        copy_bytes=best,
        write_gbps=write,
        matrix_size=matrix_size,
        matrix=tuple(matrix),
    )


def _copy_sizes(wanted: tuple[int, ...], free_bytes: int) -> list[int]:
    """Return the sizes of which two buffers fit, or else the largest that fits; rising."""
    room = int(_SHARE_OF_FREE * free_bytes / 2)
    fitting = [size for size in wanted if size <= room]
    if fitting:
        return sorted(fitting)
    if room < _SMALLEST_COPY_BYTES:
        raise MemoryError(f"{free_bytes} bytes are free, too few to measure copies")
    return [1 << (room.bit_length() - 1)]


def _matrix_size(wanted: int, free_bytes: int) -> int:
    """Return the largest size, halved as often as needed, of which three fp32 matrices fit."""
    size = wanted
    while 3 * 4 * size * size > _SHARE_OF_FREE * free_bytes:
        size //= 2
        if size < _SMALLEST_MATRIX:
            raise MemoryError(f"{free_bytes} bytes are free, too few to multiply matrices")
    return size


def _memory_rates(size: int, device: str, stopwatch: _Stopwatch) -> tuple[Spread, Spread]:
    """Return the rates of copying and of writing a buffer of so many bytes, in GB/s."""
    floats = size // 4
    # One random piece again and again: random numbers for gigabytes take a CPU seconds.
    piece = torch.rand(_PIECE_FLOATS, dtype=torch.float32, device=device)
    source = piece.repeat(floats // _PIECE_FLOATS)
    target = torch.empty_like(source)
    # All of it is read once and written once.
    copy = stopwatch.rate(partial(target.copy_, source), 2 * size / 1e9)
    return copy, stopwatch.rate(partial(target.fill_, 0.7), size / 1e9)


def _matrix_rate(form: str, size: int, device: str, stopwatch: _Stopwatch) -> Spread:
    one, two = (torch.randn(size, size, device=device).to(_DTYPES[form]) for _ in range(2))
    product = torch.empty_like(one)
    torch.backends.cuda.matmul.allow_tf32 = form == "tf32"
    try:
        return stopwatch.rate(lambda: torch.mm(one, two, out=product), 2.0 * size**3)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


class _Stopwatch:
    """Repeats a piece of work within its time, and says how fast it was."""

    def __init__(self, device: str, effort: Effort) -> None:
        self._cuda = device == "cuda"
        self._effort = effort

    def rate(self, work: Callable[[], object], amount: float) -> Spread:
        """Return how much a second is done.

        Args:
            work: one piece.
            amount: that one piece does.
        """
        with torch.no_grad():
            once_s = self._warm(work)
            count = int(self._effort.budget_s / max(once_s, 1e-9))
            count = min(max(count, _FEWEST), self._effort.most)
            times_s = self._cuda_times(work, count) if self._cuda else _wall_times(work, count)
        return Spread(median=amount / median(times_s), best=amount / min(times_s), count=count)

    def _warm(self, work: Callable[[], object]) -> float:
        """Work for a while; return the seconds that the last piece took, waiting included."""
        begin = perf_counter()
        work()
        self._wait()
        while True:
            start = perf_counter()
            work()
            self._wait()
            end = perf_counter()
            if end - begin >= self._effort.warm_s:
                return end - start

    def _cuda_times(self, work: Callable[[], object], count: int) -> list[float]:
        marks = [_event() for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        self._wait()
        return [
            marks[position].elapsed_time(marks[position + 1]) * 1e-3 for position in range(count)
        ]

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def _wall_times(work: Callable[[], object], count: int) -> list[float]:
    times_s = []
    for _ in range(count):
        start = perf_counter()
        work()
        times_s.append(perf_counter() - start)
    return times_s


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


def _free_bytes(device: str) -> int:
    if device == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    with open("/proc/meminfo") as lines:  # noqa: PTH123 (a kernel file, read line by line)
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")
