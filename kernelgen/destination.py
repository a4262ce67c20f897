"""Where output goes: stdout, a pipe or device, or a file that appears whole or not at all."""

import errno
import io
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelgen.errors import UserError

STDOUT = Path("-")
UNFINISHED = ".kernelgen-"
"""Beginning of the name of a file that is not whole yet."""

_STDERR = 2
_FULL = {errno.ENOSPC, errno.EDQUOT}


class _Heedless(io.FileIO):
    """A stream whose reader may leave and whose disk may be full: what it cannot take is lost."""

    def write(self, data: Any) -> int:
        """Return how much was taken or lost, which is all."""
        with suppress(OSError):
            return super().write(data)
        return len(data)


def settle_streams() -> None:
    """Have no state of the standard streams end a program, but a stdout that takes no more.

    One that is closed leads nowhere; otherwise the next file that is opened would take its place.
    What stderr does not take is lost. What an encoding lacks, and a byte of a file name that is not
    UTF-8, is written escaped.
    """
    # Each takes the lowest number that is free.
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(number)
    encodings = [getattr(stream, "encoding", None) for stream in (sys.stdout, sys.stderr)]
    escaped = "backslashreplace"
    sys.stdout = os.fdopen(1, "w", encoding=encodings[0], errors=escaped, closefd=False)
    raw = io.BufferedWriter(_Heedless(_STDERR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encodings[1], escaped, line_buffering=True)


def check_destination(destination: Path) -> None:
    """Make sure, before any work is done, that output can be written there.

    Raises:
        UserError: the folder does not exist or cannot be written to, the place is a folder, or
            stdout is closed.
    """
    if destination == STDOUT and sys.__stdout__ is None:
        raise UserError("-: stdout is closed; name a file")
    if destination == STDOUT or is_stream(destination):
        return
    if destination.is_dir():
        raise UserError(f"{destination}: is a folder; name a file in it")
    if not destination.parent.is_dir():
        raise UserError(f"{destination}: its folder does not exist; make it, or name another place")
    # Permission bits do not tell of a read-only file system or of access lists: trying does.
    probe = _beside(destination)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _unwritable(destination, error) from error


def write_whole(content: bytes, destination: Path, *, make_folders: bool = False) -> None:
    """Write all of a content or nothing.

    Args:
        content: the bytes.
        destination: a file, which is replaced in one step; a link to one, which stays; a pipe or
            device, which is written to; or `-` for stdout.
        make_folders: make the folders above the file.

    Raises:
        UserError: the destination cannot be written.
        OSError: the disk is full, which is nobody's mistake; it names the destination.
    """
    if destination == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        if is_stream(destination):
            destination.write_bytes(content)
            return
        if make_folders:
            destination.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(destination, content)
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(errno.ENOSPC, error.strerror, str(destination)) from error
        raise _unwritable(destination, error) from error


def is_stream(destination: Path) -> bool:
    """Return whether a pipe, device or socket is there, which is written to and never replaced.

    Raises:
        UserError: one cannot tell: the links go round, or a folder may not be searched.
    """
    try:
        mode = destination.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unwritable(destination, error) from error
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def replace_whole(destination: Path, content: bytes) -> None:
    """Have all of a content be there in one step; raises OSError, and leaves what was there."""
    temporary = _beside(destination)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            # Some file systems tell of a full disk only now; later the old file would be gone.
            os.fsync(file.fileno())
        # The new file has the rights of the old one; not all file systems tell.
        with suppress(OSError):
            temporary.chmod(stat.S_IMODE(destination.stat().st_mode))
        temporary.replace(destination.resolve())
    finally:
        temporary.unlink(missing_ok=True)


def _beside(destination: Path) -> Path:
    # A link is followed, so that the file that it points to is replaced and not the link.
    return destination.resolve().parent / f"{UNFINISHED}{secrets.token_hex(8)}.tmp"


def _unwritable(destination: Path, error: OSError) -> UserError:
    return UserError(f"{destination}: cannot be written: {error.strerror}")
