"""The device as the oracle uses it: memory beside a candidate that needs its share, its rates."""

from __future__ import annotations

import torch

from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.device_errors import is_out_of_memory
from kernelgen.hardware import rates
from kernelgen.hardware.calibration import MatrixFormat

# Below this share of the device's memory, what torch has cached here goes back.
_SHARE_LEFT_FREE = 0.4


class OracleMemory:
    """Waits for a device, and gives its memory back; on a CPU there is nothing to do.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"

    def wait(self) -> None:
        """Wait until copies, and all else, are done."""
        if self._on_gpu:
            torch.cuda.synchronize()

    def trim(self) -> None:
        """Give cached memory back."""
        if self._on_gpu:
            torch.cuda.empty_cache()

    def leave_room(self) -> None:
        """Give cached memory back where the candidate, in its own process, may need it."""
        if self._on_gpu:
            free, total = torch.cuda.mem_get_info()
            if free < _SHARE_LEFT_FREE * total:
                self.trim()

    def others_bytes(self, arena_bytes: int) -> int:
        """Return how much of the device's memory is neither torch's here nor the arena's."""
        if not self._on_gpu:
            return 0
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved() - arena_bytes


def identify(device: str) -> m.DeviceIdentified:
    """Return which device it is."""
    return m.DeviceIdentified(identity=rates.identity_of(device))


def measure_quickly(device: str, formats: tuple[MatrixFormat, ...]) -> m.RatesMeasured:
    """Measure in a few tenths of a second; a lack of memory is no reason to lose a verdict."""
    try:
        return m.RatesMeasured(calibration=rates.measure(device, rates.QUICK[device], formats))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        first_line = next(iter(str(error).splitlines()), "")
        return m.RatesMeasured(calibration=None, reason=f"memory ran out: {first_line}")
