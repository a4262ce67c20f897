"""Outputs out of a stopped candidate's memory, read by a process that it cannot reach."""

import mmap
import os
import re
from pathlib import Path

import msgspec

from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.tree import TensorSpec

_ALIGNMENT_BYTES = 512


def copy_outputs(ran: m.BatchRan, made: m.RunBatch, pid: int, arena_fd: int) -> m.BatchRan:
    """Copy outputs into the arena from the addresses that the candidate names; say where they are.

    Those addresses and sizes are its word: what cannot be read, or is more than there is room for,
    is not in place. Nor are pages of the inputs that it has mapped again in another order: nothing
    was written there. This process is an ancestor of the candidate's, which Linux lets read there
    unless it lets nobody (yama's `ptrace_scope` of 3).
    """
    outputs, cursor = [], made.outputs_at
    capacity_bytes = made.arena.capacity_bytes
    try:
        inputs = _arena_in(pid, arena_fd)
        with (
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory,  # noqa: PTH123
            mmap.mmap(arena_fd, capacity_bytes) as arena,
        ):
            for placed in ran.outputs:
                specs = []
                for spec in placed.tensors.specs:
                    data = _read(memory.fileno(), spec, capacity_bytes - cursor)
                    arena[cursor : cursor + len(data)] = data
                    end = spec.offset + len(data)
                    of_input = spec.offset < inputs.stop and inputs.start < end
                    specs.append(msgspec.structs.replace(spec, offset=cursor, of_input=of_input))
                    cursor += -(-len(data) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
                tensors = msgspec.structs.replace(placed.tensors, specs=tuple(specs))
                outputs.append(m.Placed(tensors=tensors, blocks=("",) * len(specs)))
    except OSError as error:
        return m.BatchRan(outputs=(), why_not_in_place=f"its memory cannot be read: {error}")
    return m.BatchRan(outputs=tuple(outputs))


def _arena_in(pid: int, arena_fd: int) -> range:
    """Return where a process has mapped the arena; raise OSError if more than once."""
    mapped = rb"(\w+)-(\w+) .* %d +/memfd:kernelgen-arena" % os.fstat(arena_fd).st_ino
    found = re.findall(mapped, Path(f"/proc/{pid}/maps").read_bytes())
    if len(found) > 1:
        raise OSError("it has mapped the arena more than once")
    return range(*(int(address, 16) for address in found[0])) if found else range(0)


def _read(memory: int, spec: TensorSpec, room_bytes: int) -> bytes:
    data = os.pread(memory, max(0, min(spec.nbytes, room_bytes)), spec.offset)
    if len(data) != spec.nbytes:
        raise OSError(f"{len(data)} bytes of {spec.nbytes} at address {spec.offset:#x}")
    return data
