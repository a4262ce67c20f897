"""Measure how fast a device moves memory and multiplies matrices, with torch, in this process.

Numbers are random: a device that multiplies zeros draws less power and clocks higher. Buffers are
far larger than any cache. On a GPU each piece of work lies between two events on the stream, and
the next is enqueued before the first is done; on a CPU it is the wall clock.
"""

import itertools
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from statistics import median
from time import perf_counter

import msgspec
import torch

from kernelgen.hardware.calibration import Calibration, MatrixFormat, MatrixRate, Spread
from kernelgen.hardware.driver_probe import cuda_version
from kernelgen.hardware.identity import DeviceIdentity, cpu_identity, gpu_identity
from kernelgen.sandbox.limits import available_bytes

_FEWEST = 3


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure.

    Attributes:
        copy_bytes: size of the buffers to copy and to write to, a power of two.
        matrix_size: rows and columns of the matrices.
        most: measurements of one kind.
        budget_s: of time for one kind, after which the fewest measurements do.
        warm_s: of work before the first measurement, so that clocks have risen.
        places_s: of time for the places of buffers of a size, of which the fastest counts and after
            which no other one is tried; 0 tries one.
    """

    copy_bytes: int
    matrix_size: int
    most: int
    budget_s: float
    warm_s: float
    places_s: float = 0.0


class Stopwatch:
    """Repeats a piece of work within its time, and says how fast it was."""

    def __init__(self, device: str, effort: Effort) -> None:
        self._cuda = device == "cuda"
        self.effort = effort

    def rate(self, work: Callable[[], object], amount: float) -> Spread:
        """Return how much a second is done."""
        with torch.no_grad():
            count = int(self.effort.budget_s / max(self._warm(work), 1e-9))
            count = min(max(count, _FEWEST), self.effort.most)
            times_s = self._cuda_times(work, count) if self._cuda else wall_times(work, count)
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
            if end - begin >= self.effort.warm_s:
                return end - start

    def _cuda_times(self, work: Callable[[], object], count: int) -> list[float]:
        marks = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(count + 1)
        ]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        self._wait()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in itertools.pairwise(marks)]

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def wall_times(work: Callable[[], object], count: int) -> list[float]:
    """Return the seconds that each of so many pieces of work takes by the wall clock."""
    times_s = []
    for _ in range(count):
        start = perf_counter()
        work()
        times_s.append(perf_counter() - start)
    return times_s


ALL_FORMATS: tuple[MatrixFormat, ...] = ("fp32", "tf32", "bf16", "fp16")

# TF32 is a way to multiply fp32.
_NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Buffers or matrices leave as much again to others.
_SHARE_OF_FREE = 0.4
_SMALLEST_COPY_BYTES = 16 << 20
_SMALLEST_MATRIX = 512
# A power of two, as are all sizes that are copied.
_PIECE_FLOATS = 1 << 20
_MOST_BUFFERS = 4
# One H200 copied slowly with up to 4 MiB between the two, and fast from 16 MiB on.
_FURTHER_BYTES = 16 << 20
# A quarter of the smallest size that is copied is as large as a piece of random numbers.
_FURTHER_SHARE = 4


THOROUGH = {
    "cuda": Effort(
        copy_bytes=4 << 30, matrix_size=8192, most=20, budget_s=0.4, warm_s=0.1, places_s=2.0
    ),
    "cpu": Effort(copy_bytes=1 << 30, matrix_size=2048, most=10, budget_s=0.4, warm_s=0.1),
}
# While a verdict is waited for. The matrices are as large as when there is time: an H200's
# fp32 rate at 4096 is three quarters of that at 8192.
QUICK = {
    "cuda": Effort(
        copy_bytes=4 << 30, matrix_size=8192, most=5, budget_s=0.04, warm_s=0.01, places_s=0.15
    ),
    "cpu": Effort(copy_bytes=64 << 20, matrix_size=768, most=3, budget_s=0.04, warm_s=0.0),
}


def identity_of(device: str) -> DeviceIdentity:
    """Return what torch's current device is, for the cache."""
    if device == "cpu":
        return cpu_identity()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return gpu_identity(
        properties.name,
        properties.multi_processor_count,
        properties.total_memory,
        cuda_version(),
    )


def measure(
    device: str,
    effort: Effort,
    formats: tuple[MatrixFormat, ...],
    phase: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Measure a device's rates.

    Changes torch's setting for TF32 in matrix products; set it again where it is needed.

    Raises:
        MemoryError: less memory is free than the smallest measurement takes.
        RuntimeError: torch's, such as torch.OutOfMemoryError.
    """
    stopwatch = Stopwatch(device, effort)
    size = _copy_size(effort.copy_bytes, _free_bytes(device))
    phase(f"copies and writes of {size / (1 << 20):.0f} MiB")
    copy, write = _memory_rates(size, device, stopwatch)
    # Several buffers are more than the next work should miss.
    torch.cuda.empty_cache()
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
        copy_gbps=copy,
        copy_bytes=size,
        write_gbps=write,
        matrix_size=matrix_size,
        matrix=tuple(matrix),
    )


def _copy_size(wanted: int, free_bytes: int) -> int:
    """Return the size, a power of two, or else the largest of which two buffers fit."""
    room = int(_SHARE_OF_FREE * free_bytes / 2)
    if room < _SMALLEST_COPY_BYTES:
        raise MemoryError(f"{free_bytes} bytes are free, too few to measure copies")
    return min(wanted, 1 << (room.bit_length() - 1))


def _matrix_size(wanted: int, free_bytes: int) -> int:
    """Return the largest size, halved as often as needed, of which three fp32 matrices fit."""
    size = wanted
    while 3 * 4 * size * size > _SHARE_OF_FREE * free_bytes:
        size //= 2
        if size < _SMALLEST_MATRIX:
            raise MemoryError(f"{free_bytes} bytes are free, too few to multiply matrices")
    return size


def _memory_rates(size: int, device: str, stopwatch: Stopwatch) -> tuple[Spread, Spread]:
    """Return the rates of copying and of writing a buffer of so many bytes, in GB/s.

    Of all places that are tried, the one with the best median counts, so that trying more of them
    never makes a device slower than it is.
    """
    # On H200s the same copy of 4 GiB is a tenth slower in some places than in others, and stays so
    # while its buffers stay. No call says which places are fast, so several are tried: other
    # buffers, which are other pages of the memory, and after that other distances between the two.
    places_s = stopwatch.effort.places_s
    further = min(_FURTHER_BYTES, size // _FURTHER_SHARE) if places_s else 0
    room = int(_SHARE_OF_FREE * _free_bytes(device)) // (size + further)
    count = max(2, min(_MOST_BUFFERS, room)) if places_s else 2
    # One random piece again and again: random numbers for gigabytes take a CPU seconds.
    piece = torch.rand(_PIECE_FLOATS, dtype=torch.float32, device=device)
    buffers = [piece.repeat((size + further) // 4 // _PIECE_FLOATS) for _ in range(count)]
    copies: list[tuple[Spread, torch.Tensor]] = []
    begin = perf_counter()
    for shift, number in itertools.product((0, further // 4), range(count)):
        source = buffers[number][: size // 4]
        target = buffers[(number + 1) % count][shift:][: size // 4]
        # All of it is read once and written once.
        rate = stopwatch.rate(partial(target.copy_, source), 2 * size / 1e9)
        copies.append((rate, target))
        if perf_counter() - begin >= places_s:
            break
    fastest, target = max(copies, key=lambda copy: copy[0].median)
    return fastest, stopwatch.rate(partial(target.fill_, 0.7), size / 1e9)


def _matrix_rate(form: str, size: int, device: str, stopwatch: Stopwatch) -> Spread:
    dtype = _NARROW.get(form, torch.float32)
    one, two = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(one)
    torch.backends.cuda.matmul.allow_tf32 = form == "tf32"
    try:
        return stopwatch.rate(lambda: torch.mm(one, two, out=product), 2.0 * size**3)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _free_bytes(device: str) -> int:
    if device == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    return available_bytes()
