"""The device's memory as the oracle uses it: beside a candidate that needs its own share."""

from __future__ import annotations

import torch

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
