"""The device as the oracle uses it: its memory, the arena, its rates, and what else it does."""

import functools
import platform
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter, process_time, sleep

import torch

from kernelgen.grading.timing.clock import Clock, timing_event
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import GATE_BYTES, Arena, DeviceArena, HostArena
from kernelgen.grading.wire.device_errors import is_out_of_memory
from kernelgen.hardware import rates
from kernelgen.hardware.calibration import Calibration, MatrixFormat
from kernelgen.hardware.device import cpu_facts

# Below this share of the device's memory, what torch has cached here goes back, unless less is
# wanted.
_SHARE_LEFT_FREE = 0.4
# A GPU clears the memory that it is given back. On H100s that took 2.3 ms a GB in one measurement,
# 5 to 6 in another. Kernels beside it took a sixth longer: no call is to be timed meanwhile.
_CLEARED_BYTES_PER_S = 1e11
# Of a device's memory, what may be taken by outputs that are compared later.
_KEPT_PART = 16
# A GPU's pages: what is no multiple of them is mapped in small ones, and read slowly.
_PAGE_BYTES = 2 << 20
# At 3 TB/s about 10 ms: several time slices of a GPU that two processes share.
_WRITES = 100
_BYTES = 256 << 20
_LEAST_MS = 1e-6


class OracleMemory:
    """Waits for a device, and gives its memory back; on a CPU there is nothing to do."""

    def __init__(self, clock: Clock) -> None:
        self._on_gpu, self.wait = clock.device == "cuda", clock.wait

    def trim(self, *, before_timing: bool = False) -> None:
        """Give cached memory back; before a timing, wait until the device has cleared it."""
        if not self._on_gpu:
            return
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        if before_timing:
            sleep((before - torch.cuda.memory_reserved()) / _CLEARED_BYTES_PER_S)

    def leave_room(self, wanted_bytes: int | None = None) -> None:
        """Give cached memory back where the candidate may need it: these bytes, if known."""
        if not self._on_gpu:
            return
        free, total = torch.cuda.mem_get_info()
        usual = int(_SHARE_LEFT_FREE * total)
        if free < (usual if wanted_bytes is None else min(usual, wanted_bytes)):
            self.trim(before_timing=True)

    def others_bytes(self, arena_bytes: int) -> int:
        """Return how much of the device's memory is neither torch's here nor the arena's."""
        if not self._on_gpu:
            return 0
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved() - arena_bytes


class OracleArena:
    """The memory through which tensors cross, replaced by a larger one where a case needs it.

    Before that, `trim` gives memory back.
    """

    def __init__(self, device: str, trim: Callable[[], None]) -> None:
        self._device, self._trim = device, trim
        # The last one is in use. The candidate's process may still map those before.
        self._arenas: list[Arena] = []
        self._generation = 0

    @functools.cached_property
    def gate(self) -> HostArena:
        """The gate beside a GPU's arenas, see wire/arena.py."""
        return HostArena(GATE_BYTES)

    @property
    def present(self) -> Arena:
        """The arena; there is one once `at_least` has been called."""
        return self._arenas[-1]

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that go along with the handle: a memfd's, the gate's for a GPU."""
        return (self.present.fd if isinstance(self.present, HostArena) else self.gate.fd,)

    @property
    def total_bytes(self) -> int:
        """Bytes of all that is allocated."""
        return sum(arena.capacity_bytes for arena in self._arenas)

    def at_least(self, nbytes: int) -> None:
        """Have an arena with at least this many bytes: the present one if it has them."""
        nbytes = -(-max(nbytes, 1) // _PAGE_BYTES) * _PAGE_BYTES
        if not self._arenas or self.present.capacity_bytes < nbytes:
            self._trim()
            made: Arena = DeviceArena(nbytes) if self._device == "cuda" else HostArena(nbytes)
            self._arenas.append(made)
            self._generation += 1

    def leaves(self, nbytes: int) -> bool:
        """Whether so much of the GPU is free, or becomes so by giving back what is cached."""
        if torch.cuda.mem_get_info()[0] < nbytes:
            self._trim()
        return torch.cuda.mem_get_info()[0] >= nbytes

    def has_room_to_keep(self, kept_bytes: int, nbytes: int) -> bool:
        """Whether a GPU has room for more copies of a candidate's outputs beside those there.

        The candidate is to run again, and may need as much as before.
        """
        if self._device != "cuda":
            return False
        most = torch.cuda.mem_get_info()[1] // _KEPT_PART
        return kept_bytes + nbytes <= most and self.leaves(nbytes + max(nbytes, self.total_bytes))

    def close_retired(self) -> None:
        """Free what the candidate has had the time to let go of."""
        while len(self._arenas) > 1:
            self._arenas.pop(0).close()

    def close(self) -> None:
        """Free all of it: the candidate has ended."""
        while self._arenas:
            self._arenas.pop().close()

    def handle(self) -> m.ArenaHandle:
        """Return how the other side opens it."""
        present = self.present
        return m.ArenaHandle(
            handle=present.ipc_handle().hex() if isinstance(present, DeviceArena) else "",
            capacity_bytes=present.capacity_bytes,
            generation=self._generation,
        )


class Probe:
    """A long write of the oracle's own: the measure of what else a device is doing."""

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
        start, start_of_cpu = perf_counter(), process_time()
        for number in range(writes):
            if on_gpu:
                marks[number].record()
            self._memory.fill_(1.0)
        if on_gpu:
            marks[-1].record()
        self._clock.wait()
        elapsed_ms = (perf_counter() - start) * 1e3
        # Each is over within a turn on a GPU that others use too. A CPU's turns are in no thread's
        # time.
        cpu_ms = (process_time() - start_of_cpu) * 1e3 / torch.get_num_threads()
        quickest_ms = min((a.elapsed_time(b) for a, b in pairwise(marks)), default=cpu_ms)
        return m.Probed(
            elapsed_ms=elapsed_ms,
            alone_ms=max(quickest_ms * writes, _LEAST_MS),
            written_bytes=_BYTES * writes,
            cache_bytes=torch.cuda.get_device_properties(0).L2_cache_size if on_gpu else 0,
        )


def measure_quickly(device: str, formats: tuple[MatrixFormat, ...]) -> Calibration | str:
    """Measure in a few tenths of a second, or say what is lacking: no verdict is lost by that."""
    try:
        return rates.measure(device, rates.QUICK[device], formats)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        first_line = next(iter(str(error).splitlines()), "")
        return f"memory ran out: {first_line}"


def ready(clock: Clock) -> m.OracleReady:
    """Describe the device, and what else a reader of the times needs to know."""
    cpu = cpu_facts().name
    facts: dict[str, str | int | bool | None] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
        "cpu": cpu,
        "cpu_threads": torch.get_num_threads(),
    }
    name, uuid = cpu, ""
    if clock.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name, told = str(properties.name), getattr(properties, "uuid", None)
        uuid = f"GPU-{told}" if told is not None else ""
        facts |= {
            "gpu": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
        }
    return m.OracleReady(
        device_name=name, device_uuid=uuid, method=clock.method(), environment=facts
    )
