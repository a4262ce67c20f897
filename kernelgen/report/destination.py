"""Where a JSON report goes: stdout, a device, or a file that appears whole or not at all."""

import errno
import os
import secrets
import sys
from pathlib import Path

from kernelgen.errors import UserError

STDOUT = Path("-")
_FULL = {errno.ENOSPC, errno.EDQUOT}


def check_destination(destination: Path) -> None:
    """Make sure, before any work is done, that a report can be written there.

    Raises:
        UserError: the folder does not exist or cannot be written to, or the place is a folder.
    """
    if destination == STDOUT or _is_stream(destination):
        return
    if destination.is_dir():
        raise UserError(f"{destination}: is a folder; name a file in it, such as run.json")
    if not destination.parent.is_dir():
        raise UserError(f"{destination}: its folder does not exist; make it, or name another place")
    # Permission bits do not tell of a read-only file system or of access lists: trying does.
    probe = _beside(destination)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _unwritable(destination, error) from error


def write_report(report: bytes, destination: Path) -> None:
    """Write a report, all of it or nothing.

    Args:
        report: its bytes.
        destination: a file, which is replaced in one step; a pipe or device, which is written to;
            or `-` for stdout.

    Raises:
        UserError: the file cannot be written.
        OSError: the disk is full, which is nobody's mistake; it names the destination.
    """
    if destination == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(report)
        sys.stdout.buffer.flush()
        return
    try:
        if _is_stream(destination):
            destination.write_bytes(report)
        else:
            _replace(destination.resolve(), report)
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(errno.ENOSPC, error.strerror, str(destination)) from error
        raise _unwritable(destination, error) from error


def _replace(destination: Path, content: bytes) -> None:
    temporary = _beside(destination)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            # Some file systems tell of a full disk only now; later the old report would be gone.
            os.fsync(file.fileno())
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(destination: Path) -> Path:
    # A link is followed, so that the file that it points to is replaced and not the link.
    return destination.resolve().parent / f".kernelgen-{secrets.token_hex(8)}.tmp"


def _is_stream(destination: Path) -> bool:
    return destination.exists() and not destination.is_file() and not destination.is_dir()


def _unwritable(destination: Path, error: OSError) -> UserError:
    return UserError(f"{destination}: the report cannot be written: {error.strerror}")
