"""Limits that the kernel does not enforce: memory, all processes of root, the log's length."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Literal

from kernelgen.sandbox import kernel
from kernelgen.sandbox.record import Limits
from kernelgen.sandbox.tree import resident_bytes, tasks_of

_INTERVAL_S = 0.5
_GIBIBYTE = 1 << 30
# More than what is ever read of it, see Worker.log_tail.
_LOG_KEPT_BYTES = 8 << 20
_LOG_LIMIT_BYTES = 64 << 20
_BLOCK_BYTES = 512


class OverLimit(Exception):  # noqa: N818 (a finding)
    """A candidate uses more than it may; the message says of what, and the limit."""

    def __init__(self, what: Literal["memory", "processes"], reason: str) -> None:
        super().__init__(reason)
        self.what = what


class Watch:
    """Looks at a candidate twice a second, when the supervisor waits for it.

    Args:
        list_processes: returns all processes of the candidate.
        log: descriptor of the file that takes what it prints.
    """

    def __init__(
        self, limits: Limits, list_processes: Callable[[], Iterable[int]], log: int
    ) -> None:
        self._limits, self._list, self._log = limits, list_processes, log
        self._due = 0.0

    def look(self) -> None:
        """Look, if it is time to.

        Raises:
            OverLimit: it has to be ended.
        """
        if time.monotonic() < self._due:
            return
        trim_log(self._log)
        pids = list(self._list())
        tasks = sum(tasks_of(pid) for pid in pids)
        if tasks > self._limits.processes:
            reason = f"{tasks} processes and threads at once; {self._limits.processes} may be"
            raise OverLimit("processes", reason)
        held = resident_bytes(pids, self._limits.memory_bytes)
        if held > self._limits.memory_bytes:
            limit = self._limits.memory_bytes / _GIBIBYTE
            reason = f"its processes hold {held / _GIBIBYTE:.2f} GiB; {limit:.2f} GiB may be"
            raise OverLimit("memory", reason)
        self._due = time.monotonic() + _INTERVAL_S


def trim_log(log: int) -> None:
    """Free what a long log takes on the disk, but for its end."""
    found = os.fstat(log)
    if found.st_blocks * _BLOCK_BYTES <= _LOG_LIMIT_BYTES:
        return
    with contextlib.suppress(OSError):  # a file system without holes keeps the whole
        kernel.punch_hole(log, max(0, found.st_size - _LOG_KEPT_BYTES))
        if os.fstat(log).st_blocks * _BLOCK_BYTES > _LOG_LIMIT_BYTES:
            os.ftruncate(log, found.st_size)  # room reserved beyond its end
