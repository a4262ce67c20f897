"""A folder of compiled files by the digest of what they were compiled from.

Any number of runs may use it at once. A file comes under its name whole or not at all; what is torn
nevertheless, by a crash of the machine, does not fit its checksum and is removed. What was used
longest ago goes first when the folder grows too large.
"""

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path

from kernelgen.destination import UNFINISHED, replace_whole

_LIMIT_BYTES = 2 << 30
_CHECK_BYTES = hashlib.sha256().digest_size
_ENTRY = re.compile(r"[0-9a-f]{64}")
_ABANDONED_AFTER_S = 3600.0


class BuildStore:
    """The entries of one folder, which exists; keys are SHA-256 in hexadecimal."""

    def __init__(self, folder: Path, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._folder, self._limit_bytes = folder, limit_bytes

    def get(self, key: str) -> bytes | None:
        """Return an entry, None if there is none."""
        path = self._folder / key
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        kept = data[_CHECK_BYTES:]
        if hashlib.sha256(kept).digest() != data[:_CHECK_BYTES]:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
        return kept

    def put(self, key: str, data: bytes) -> None:
        """Keep an entry; one that is larger than the whole may be is not kept.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        replace_whole(self._folder / key, hashlib.sha256(data).digest() + data)
        self._trim()

    def _trim(self) -> None:
        entries: list[tuple[float, int, str]] = []
        abandoned = time.time() - _ABANDONED_AFTER_S
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):  # another run trims, too
                found = entry.stat(follow_symlinks=False)
                if _ENTRY.fullmatch(entry.name):
                    entries.append((found.st_mtime, found.st_size, entry.path))
                elif entry.name.startswith(UNFINISHED) and found.st_mtime < abandoned:
                    Path(entry.path).unlink(missing_ok=True)
        held = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if held <= self._limit_bytes:
                break
            Path(path).unlink(missing_ok=True)
            held -= size
