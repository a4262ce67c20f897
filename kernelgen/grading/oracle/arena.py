"""The oracle's arena: replaced by a larger one where a case asks for more room."""

from __future__ import annotations

from collections.abc import Callable

from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import Arena, DeviceArena, HostArena

# A GPU's pages: what is no multiple of them is mapped in small ones, and read slowly.
_PAGE_BYTES = 2 << 20


class OracleArena:
    """The memory through which tensors cross, as its owner has it.

    Args:
        device: `cuda` or `cpu`.
        trim: gives memory back before a larger one is made.
    """

    def __init__(self, device: str, trim: Callable[[], None]) -> None:
        self._device, self._trim = device, trim
        self._present: Arena | None = None
        self._retired: list[Arena] = []
        self._generation = 0

    @property
    def present(self) -> Arena:
        """The arena; there is one once `at_least` has been called."""
        assert self._present is not None
        return self._present

    @property
    def fds(self) -> tuple[int, ...]:
        """What has to go along with the handle: a memfd's descriptor."""
        return (self._present.fd,) if isinstance(self._present, HostArena) else ()

    @property
    def total_bytes(self) -> int:
        """Bytes of all that is allocated."""
        present = [] if self._present is None else [self._present]
        return sum(arena.capacity_bytes for arena in (*self._retired, *present))

    def at_least(self, nbytes: int) -> Arena:
        """Return an arena with at least this many bytes, the present one if it has them."""
        nbytes = -(-max(nbytes, 1) // _PAGE_BYTES) * _PAGE_BYTES
        if self._present is not None:
            if self._present.capacity_bytes >= nbytes:
                return self._present
            # The candidate's process still maps it, until it opens the new one.
            self._retired.append(self._present)
            self._present = None
        self._trim()
        self._generation += 1
        self._present = DeviceArena(nbytes) if self._device == "cuda" else HostArena(nbytes)
        return self._present

    def close_retired(self) -> None:
        """Free what the candidate has had the time to let go of."""
        while self._retired:
            self._retired.pop().close()

    def handle(self) -> m.ArenaHandle:
        """Return how the other side opens it."""
        device = self._present if isinstance(self._present, DeviceArena) else None
        return m.ArenaHandle(
            kind="memfd" if device is None else "cuda",
            handle="" if device is None else device.ipc_handle().hex(),
            capacity_bytes=self.present.capacity_bytes,
            generation=self._generation,
        )
