"""The owner of a failure when a resource is gone: memory, the device, or room on the disk.

The machine is asked while the workers are still there, and a candidate's word alone never counts.
"""

import contextlib
import errno
import os
import shutil
import time
from pathlib import Path

from kernelgen.errors import KernelgenFault
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.verdict import Judged, Owner, Status
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Device
from kernelgen.sandbox.limits import small_file_limit

# How a candidate fails when the GPU is taken away under it.
_LIKE_A_LOST_DEVICE = (Status.RUNTIME_ERROR, Status.CRASHED, Status.TIMEOUT)
_CHECK_TIMEOUT_S = 60.0
# Looks at the device's memory before and after a candidate's end. Others that hold as much
# throughout have not freed any in between, as far as anyone can tell.
_LOOKS, _LOOK_EVERY_S = 4, 0.25
_STEADY_BYTES = 256 << 20


def reconsider(judged: Judged, dialogue: Dialogue, device: Device, reference_bytes: int) -> Judged:
    """Return what a failure is, once the machine has been asked; ends the candidate if it asks.

    The oracle's word alone counts: a candidate that says that its GPU was lost is believed when
    the oracle finds the same, and one that has taken the memory is named by what was free after
    its end.
    """
    if not dialogue.has_host:
        return judged
    # A candidate that ends the grader's processes as its last act is not excused by that.
    with contextlib.suppress(KernelgenFault):
        if judged.status is Status.OUT_OF_MEMORY and judged.owner is Owner.GRADER:
            return _by_share(judged, dialogue, device, reference_bytes)
        if judged.status in _LIKE_A_LOST_DEVICE:
            return _by_device(judged, dialogue)
    return judged


def _by_share(judged: Judged, dialogue: Dialogue, device: Device, reference_bytes: int) -> Judged:
    try:
        if device == "cuda":
            # Other programs may be on the GPU too: the candidate's is what its end gives back.
            before = _others_bytes(dialogue)
            dialogue.end_host()
            after = _others_bytes(dialogue)
            if max(_spread(before), _spread(after)) > _STEADY_BYTES:
                # Memory that others gave back meanwhile would count as the candidate's.
                return judged
            held_bytes = min(before) - max(after)
        else:
            held_bytes = dialogue.host_bytes()
            dialogue.end_host()
    except Judged:
        return judged
    why = blame_for_memory(device, held_bytes, reference_bytes)
    if why is None:
        return judged
    return Judged(Status.OUT_OF_MEMORY, f"{why}\n({judged.reason})", Owner.CANDIDATE)


def _others_bytes(dialogue: Dialogue) -> list[int]:
    """Return a few looks at the memory of other processes; the candidate's is stopped."""
    found = [dialogue.ask_oracle(m.MeasureMemory())]
    for _ in range(_LOOKS - 1):
        time.sleep(_LOOK_EVERY_S)
        found.append(dialogue.ask_oracle(m.MeasureMemory()))
    return found


def _spread(found: list[int]) -> int:
    return max(found) - min(found)


def _by_device(judged: Judged, dialogue: Dialogue) -> Judged:
    # A kernel without an end would keep the oracle's waiting.
    dialogue.end_host()
    try:
        dialogue.ask_oracle(m.CheckDevice(), _CHECK_TIMEOUT_S)
    except Judged as lost:
        if lost.status is not Status.GRADER_ERROR:
            return judged  # no room for two numbers says nothing about the device
        reason = f"{lost.reason}\nBefore that, and maybe for this reason, the candidate failed: "
        return Judged(Status.GRADER_ERROR, reason + judged.reason)
    return judged


# Of the reference's own inputs, parameters and outputs: an honest candidate keeps a copy of them,
# caches what it has freed, and may need a few temporaries of their size.
_TIMES_THE_REFERENCE = 4
# Memory of a process that computes nothing: torch, a CUDA context with its modules, flush buffers.
_OVERHEAD_BYTES = {"cuda": 4 << 30, "cpu": 1 << 30}


def blame_for_memory(device: Device, held_bytes: int, reference_bytes: int) -> str | None:
    """Return why a lack of memory is the candidate's, or None if it is not."""
    if held_bytes <= _TIMES_THE_REFERENCE * reference_bytes + _OVERHEAD_BYTES[device]:
        return None
    place = "GPU" if device == "cuda" else "machine"
    return (
        f"the candidate's process held {held_bytes / 1e9:.3g} GB of the {place}'s memory "
        f"and left too little for the comparison: more than {_TIMES_THE_REFERENCE} times the "
        f"{reference_bytes / 1e9:.3g} GB of the reference's inputs, parameters and "
        f"outputs and {_OVERHEAD_BYTES[device] / 1e9:.3g} GB for the process itself; "
        "allocate less, and free what a call no longer needs"
    )


# With less than this, compilers fail in ways that look like errors in the source.
_LEAST_FREE_BYTES = 16 << 20
_LEAST_FREE_FILES = 64
# A build leaves a few MiB behind, torch.compile's cache hundreds; more is their own doing.
_USUAL_BYTES = 512 << 20
_USUAL_FILES = 20_000
_STAT_BLOCK_BYTES = 512
_FULL = (errno.ENOSPC, errno.EDQUOT)


def excuse(judged: Judged, folder: Path) -> Judged:
    """Take the blame off a candidate whose compiler or process found no room on the disk.

    One that has filled the disk itself keeps it. A build may also have met the shell's limit.
    """
    if judged.status is Status.BUILD_ERROR and (limit := small_file_limit()):
        return Judged(Status.GRADER_ERROR, f"{limit}. That may be why: {judged.reason}")
    lack = _lack_of(folder)
    if judged.owner is not Owner.CANDIDATE or lack is None:
        return judged
    files = [file.lstat() for file in folder.rglob("*")]
    used_bytes = sum(stat.st_blocks for stat in files) * _STAT_BLOCK_BYTES
    if used_bytes > _USUAL_BYTES or len(files) > _USUAL_FILES:
        return judged
    reason = (
        f"the disk of {folder.parent.parent} is full ({lack}), which may be why: "
        f"{judged.reason}\nMake room, or set TMPDIR to a folder on another disk"
    )
    return Judged(Status.GRADER_ERROR, reason)


def full_disk_reason(error: OSError, folder: Path) -> str | None:
    """Return what to say of an error of the grader's own writing, if the disk is full."""
    if error.errno not in _FULL:
        return None
    return (
        f"the disk of {folder.parent} is full ({error.strerror}: {error.filename or folder}); make "
        "room, or set TMPDIR to a folder on another disk"
    )


def _lack_of(folder: Path) -> str | None:
    """Return what the disk lacks, such as `3 MiB free`, or None if it has enough of all."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes <= _LEAST_FREE_BYTES:
        return f"{free_bytes >> 20} MiB free"
    table = os.statvfs(folder)
    # A file system that makes room for files as it goes counts none.
    if table.f_files and table.f_favail <= _LEAST_FREE_FILES:
        return f"room for {table.f_favail} more files"
    return None
