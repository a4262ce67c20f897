"""The gate at which a GPU's work waits: host memory that two processes share."""

import ctypes
import os
from typing import Any

import pytest

from kernelgen.grading.timing.clock import timing_event
from kernelgen.grading.wire import arena as arenas
from kernelgen.grading.wire.arena import GATE_BYTES, DeviceArena, HostArena, open_arena
from kernelgen.grading.wire.messages import ArenaHandle

ONES = 0x01010101
SEEN_BY_THE_DEVICE = 0x7F00


class Driver:
    """A driver that notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call(self, name: str, *arguments: Any, of: str = "") -> None:
        """Note a call; the device sees host memory at an address of its own."""
        del of
        self.calls.append((name, arguments))
        if name == "cuMemHostGetDevicePointer_v2":
            ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_uint64))[0] = SEEN_BY_THE_DEVICE


def word(gate: HostArena) -> int:
    return ctypes.c_uint32.from_address(gate.address).value


def test_work_waits_at_the_page_that_the_other_side_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(arenas, "_Driver", lambda: driver)
    monkeypatch.setattr(arenas, "_present_stream", lambda: 5)
    ours = HostArena(GATE_BYTES)
    handle = ArenaHandle(handle="ab" * 64, capacity_bytes=1 << 20, generation=1)
    theirs = open_arena(handle, [os.dup(ours.fd)])
    assert isinstance(theirs, DeviceArena)
    registered = next(given for name, given in driver.calls if name == "cuMemHostRegister_v2")
    address = registered[0]
    assert registered[1:] == (GATE_BYTES, 0)
    assert ctypes.c_uint32.from_address(address).value != ONES
    ours.view(0, GATE_BYTES).fill_(1)
    assert ctypes.c_uint32.from_address(address).value == word(ours) == ONES
    theirs.wait_at_gate()
    asked = dict(driver.calls)
    assert asked["cuMemHostGetDevicePointer_v2"][1] == address
    # Greater or equal, as a whole word of ones is; a half-written one is not.
    assert asked["cuStreamWaitValue32_v2"] == (5, SEEN_BY_THE_DEVICE, ONES, 0)
    theirs.close()
    assert driver.calls[-1][0] == "cuIpcCloseMemHandle"
    assert dict(driver.calls)["cuMemHostUnregister"] == (address,)


@pytest.mark.gpu
def test_a_gpu_does_nothing_before_the_gate_is_open() -> None:
    import torch

    gate = HostArena(GATE_BYTES)
    arena = DeviceArena(1 << 20, gate=gate)
    seen = arena.view(0, 4)
    seen.fill_(3)
    torch.cuda.synchronize()
    arena.wait_at_gate()
    seen.fill_(7)
    done: Any = timing_event()
    done.record()
    assert not done.query()
    gate.view(0, GATE_BYTES).fill_(1)
    torch.cuda.synchronize()
    assert done.query()
    assert seen.tolist() == [7] * 4
    arena.close()
