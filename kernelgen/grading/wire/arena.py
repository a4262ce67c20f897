"""The arena: memory through which the oracle and the candidate exchange tensors' bytes.

On a GPU it is an allocation of its own (not torch's: an IPC handle opens the whole block that an
address lies in, and a block of torch's allocator holds other tensors too), opened by the other
process through CUDA IPC. On the CPU it is a sealed memfd. It carries inputs one way and outputs the
other, one after the other, and never an expected output.

Beside a GPU's arena is a gate: a page of host memory, at which the other process has its work wait
for this one. A device reads it as it is, and opening it is a store. A kernel that wrote in the
device's memory would wait for its process's turn, the longer the more kernels are queued.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Any

import msgspec
import torch

from kernelgen.grading.wire.messages import ArenaHandle

# CU_POINTER_ATTRIBUTE_BUFFER_ID of cuda.h.
_BUFFER_ID = 7
GATE_BYTES = mmap.PAGESIZE
# By reference, before any candidate is imported.
_memmove = ctypes.memmove


class HostArena:
    """A memfd, mapped, and sealed against resizing: no peer can turn an access into a SIGBUS."""

    device = "cpu"

    def __init__(self, capacity_bytes: int, fd: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        if fd is None:
            fd = os.memfd_create("kernelgen-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, capacity_bytes)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        self.fd = fd
        self._map = mmap.mmap(fd, capacity_bytes)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def write(self, offset: int, data: torch.Tensor) -> None:
        """Copy a flat uint8 tensor into the arena."""
        _move(self.view(offset, data.numel()), data)

    def read(self, offset: int, data: torch.Tensor) -> None:
        """Copy from the arena into a flat uint8 tensor."""
        _move(data, self.view(offset, data.numel()))

    def view(self, offset: int, nbytes: int) -> torch.Tensor:
        """Return a part of it as a flat uint8 tensor that shares its memory."""
        return flat_at(self._bytes, offset, nbytes)

    @property
    def address(self) -> int:
        """The address of its first byte in this process."""
        return self._bytes.data_ptr()

    def close(self) -> None:
        """Release the mapping and the descriptor."""
        del self._bytes
        self._map.close()
        os.close(self.fd)


def flat_at(memory: torch.Tensor, start: int, nbytes: int) -> torch.Tensor:
    """Return a part of a flat uint8 tensor as one that begins at offset 0 of a storage of its own.

    Inputs are views of such parts: at another offset, `as_strided` would count from elsewhere.
    """
    part = memory.untyped_storage()[start : start + nbytes]
    return torch.empty(0, dtype=torch.uint8, device=memory.device).set_(part, 0, (nbytes,), (1,))


def _move(to: torch.Tensor, data: torch.Tensor) -> None:
    """Copy flat uint8 tensors of one length, without torch's threads.

    Those spin for milliseconds after their work. Beside a candidate with an OpenMP library of its
    own they take a core from it in every call that follows.
    """
    if to.numel() != data.numel():
        raise ValueError(f"{data.numel()} bytes do not go into {to.numel()}")
    _memmove(to.data_ptr(), data.data_ptr(), data.numel())


class DeviceArena:
    """GPU memory through the driver's own allocator and IPC.

    Args:
        gate: at which work of this process waits; it is closed with the arena.
    """

    device = "cuda"

    def __init__(
        self, capacity_bytes: int, ipc_handle: bytes | None = None, gate: HostArena | None = None
    ) -> None:
        self.capacity_bytes, self._gate = capacity_bytes, gate
        self._driver = _Driver()
        if gate is not None:
            self._driver.call("cuMemHostRegister_v2", gate.address, gate.capacity_bytes, 0)
        self._opened = ipc_handle is not None
        pointer = ctypes.c_uint64()
        if ipc_handle is None:
            said = f" of {capacity_bytes} bytes"
            self._driver.call("cuMemAlloc_v2", ctypes.byref(pointer), capacity_bytes, of=said)
        else:
            other, lazy_peer_access = _IpcHandle.from_buffer_copy(ipc_handle), 1
            opened = (ctypes.byref(pointer), other, lazy_peer_access)
            self._driver.call("cuIpcOpenMemHandle_v2", *opened)
        self._pointer = pointer.value

    def ipc_handle(self) -> bytes:
        """Return the 64 bytes by which another process opens this memory."""
        return self._driver.export(self._pointer)

    def write(self, offset: int, data: torch.Tensor) -> None:
        """Enqueue a copy into the arena on the current stream."""
        self._copy(self._pointer + offset, data.data_ptr(), data.numel())

    def read(self, offset: int, data: torch.Tensor) -> None:
        """Enqueue a copy out of the arena on the current stream."""
        self._copy(data.data_ptr(), self._pointer + offset, data.numel())

    def view(self, offset: int, nbytes: int) -> torch.Tensor:
        """Return a part of it as a flat uint8 tensor that shares its memory."""
        # Private, but what torch's own CUDA graph trees are built on, and DLPack's other side is
        # not available without a library of its own.
        own, address = torch.device("cuda", 0), self._pointer + offset
        part = torch._C._construct_storage_from_data_pointer(address, own, nbytes)  # noqa: SLF001
        return torch.empty(0, dtype=torch.uint8, device=own).set_(part, 0, (nbytes,), (1,))

    def wait_at_gate(self) -> None:
        """Have the current stream wait until the gate is open: its first bytes are ones."""
        assert self._gate is not None
        stream, value, at_least, seen = _present_stream(), 0x01010101, 0, ctypes.c_uint64()
        address = ctypes.byref(seen), self._gate.address, 0
        self._driver.call("cuMemHostGetDevicePointer_v2", *address)
        self._driver.call("cuStreamWaitValue32_v2", stream, seen.value, value, at_least)

    def close(self) -> None:
        """Free the memory, or unmap another process's."""
        if self._gate is not None:
            self._driver.call("cuMemHostUnregister", self._gate.address)
            self._gate.close()
        self._driver.call("cuIpcCloseMemHandle" if self._opened else "cuMemFree_v2", self._pointer)

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        self._driver.call("cuMemcpyDtoDAsync_v2", destination, source, nbytes, _present_stream())


class BorrowedBlock(DeviceArena):
    """A whole allocation of another process's, opened by the handle that its `Places` gave."""

    def __init__(self, ipc_handle: bytes) -> None:
        super().__init__(0, ipc_handle)
        _, self.capacity_bytes = self._driver.range_of(self._pointer)


Arena = HostArena | DeviceArena
"""Memory that another process can map; tensors of another `device` cannot be copied into it."""


class Place(msgspec.Struct, frozen=True):
    """Where a tensor's memory begins: its allocation's IPC handle, and bytes from its start.

    Without a handle, the bytes are an address in the process.
    """

    ipc_handle: bytes
    offset: int


class Places:
    """Says where other processes find this one's tensors on a device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._driver = _Driver() if device == "cuda" else None
        # By the allocation's id, which is never used twice: an address is.
        self._handles: dict[int, bytes] = {}

    def of(self, tensor: torch.Tensor) -> Place:
        """Return where a tensor's first element lies.

        Raises:
            OSError: its memory has no IPC handle (cudaMallocAsync, virtual memory management).
        """
        address = tensor.data_ptr()
        if self._driver is None:
            return Place(b"", address)
        start, _ = self._driver.range_of(address)
        identity = self._driver.identity_of(address)
        if identity not in self._handles:
            self._handles[identity] = self._driver.export(start)
        return Place(self._handles[identity], address - start)


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_byte * 64),)


# The calls of the CUDA driver that the arena needs, as cuda.h declares them; torch offers none.
_POINTER, _ADDRESS = ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)
_SIZE, _STREAM = ctypes.c_size_t, ctypes.c_void_p
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuMemAlloc_v2": (_ADDRESS, _SIZE),
    "cuMemFree_v2": (_POINTER,),
    "cuIpcGetMemHandle": (ctypes.POINTER(_IpcHandle), _POINTER),
    "cuIpcOpenMemHandle_v2": (_ADDRESS, _IpcHandle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_POINTER,),
    "cuMemGetAddressRange_v2": (_ADDRESS, ctypes.POINTER(_SIZE), _POINTER),
    "cuPointerGetAttribute": (ctypes.c_void_p, ctypes.c_int, _POINTER),
    "cuMemHostRegister_v2": (_POINTER, _SIZE, ctypes.c_uint),
    "cuMemHostGetDevicePointer_v2": (_ADDRESS, _POINTER, ctypes.c_uint),
    "cuMemHostUnregister": (_POINTER,),
    "cuStreamWaitValue32_v2": (_STREAM, _POINTER, ctypes.c_uint32, ctypes.c_uint),
    "cuMemcpyDtoDAsync_v2": (_POINTER, _POINTER, _SIZE, _STREAM),
}


class _Driver:
    """The driver, for the device's primary context; a failure is a MemoryError or an OSError."""

    def __init__(self) -> None:
        # The first allocation makes the device's primary context current in this thread.
        torch.empty(1, device="cuda")
        self._lib = ctypes.CDLL("libcuda.so.1")
        for name, types in _CALLS.items():
            getattr(self._lib, name).argtypes = types

    def call(self, name: str, *arguments: Any, of: str = "") -> None:
        if result := getattr(self._lib, name)(*arguments):
            error = ctypes.c_char_p()
            self._lib.cuGetErrorName(result, ctypes.byref(error))
            text = f"{name.removesuffix('_v2')}{of}: {(error.value or b'unknown').decode()}"
            raise MemoryError(text) if "CUDA_ERROR_OUT_OF_MEMORY" in text else OSError(text)

    def export(self, pointer: int) -> bytes:
        handle = _IpcHandle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        return bytes(handle)

    def range_of(self, pointer: int) -> tuple[int, int]:
        """Return start and bytes of the allocation that an address lies in."""
        start, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        given = (ctypes.byref(start), ctypes.byref(nbytes), pointer)
        self.call("cuMemGetAddressRange_v2", *given)
        return start.value, nbytes.value

    def identity_of(self, pointer: int) -> int:
        """Return the id of the allocation that an address lies in, unique in this process."""
        identity = ctypes.c_ulonglong()
        self.call("cuPointerGetAttribute", ctypes.byref(identity), _BUFFER_ID, pointer)
        return identity.value


def _present_stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)


def open_arena(handle: ArenaHandle, fds: list[int]) -> Arena:
    """Map another process's arena; `fds` are those that came with the handle."""
    if handle.handle:
        gate = HostArena(GATE_BYTES, fds.pop(0))
        return DeviceArena(handle.capacity_bytes, bytes.fromhex(handle.handle), gate)
    return HostArena(handle.capacity_bytes, fds.pop(0))
