"""A disk without room: whose it is that compilers and processes found none."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from kernelgen.grading.judged import Judged
from kernelgen.grading.verdict import Owner, Status

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

    One that has filled the disk itself keeps it.

    Args:
        judged: how its grading ended.
        folder: everything that it wrote, its log included.
    """
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
