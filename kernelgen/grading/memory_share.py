"""Whose it is that memory has run out: how much the candidate's processes hold, and may hold."""

from __future__ import annotations

from pathlib import Path

import msgspec

# Of the reference's own inputs, parameters and outputs: an honest candidate keeps a copy of them,
# caches what it has freed, and may need a few temporaries of their size.
_TIMES_THE_REFERENCE = 4
# What a process has whatever it computes: torch, a CUDA context with its modules, flush buffers.
_OVERHEAD_BYTES = {"cuda": 4 << 30, "cpu": 1 << 30}
_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


class MemoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """What the candidate's processes held when the oracle found no more memory.

    Attributes:
        device: `cuda` or `cpu`.
        held_bytes: by the candidate's processes.
        reference_bytes: the reference's inputs, parameters and outputs, once each.
    """

    device: str
    held_bytes: int
    reference_bytes: int

    @property
    def allowed_bytes(self) -> int:
        """What an honest candidate holds at most."""
        return _TIMES_THE_REFERENCE * self.reference_bytes + _OVERHEAD_BYTES[self.device]

    def blame(self) -> str | None:
        """Return why the lack of memory is the candidate's, or None if it is not."""
        if self.held_bytes <= self.allowed_bytes:
            return None
        place = "GPU" if self.device == "cuda" else "machine"
        return (
            f"the candidate's process held {self.held_bytes / 1e9:.3g} GB of the {place}'s memory "
            f"and left too little for the comparison: more than {_TIMES_THE_REFERENCE} times the "
            f"{self.reference_bytes / 1e9:.3g} GB of the reference's inputs, parameters and "
            f"outputs and {_OVERHEAD_BYTES[self.device] / 1e9:.3g} GB for the process itself; "
            "allocate less, and free what a call no longer needs"
        )


def own_bytes(pid: int) -> int:
    """Return the memory that a process keeps from others, swapped out or not; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    fields = (line.split() for line in status.splitlines() if line.startswith(_COUNTED))
    return sum(int(field[1]) * 1024 for field in fields)


def tree_bytes(pid: int) -> int:
    """Return the memory that a process and all below it keep from others, swapped out or not."""
    total = 0
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has just ended
        total += own_bytes(current)
    return total
