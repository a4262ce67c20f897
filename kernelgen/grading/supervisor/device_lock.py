"""Turns on one GPU between processes: many build and check, or one times.

Two files in the folder for temporary files that all users share hold the turns by `flock`, which
ends with the process that holds it, however that ended. Who wants the GPU alone holds the first
file while it waits for the second, so that those who come later wait behind it.
"""

import contextlib
import fcntl
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER = Path("/tmp")  # noqa: S108 (all users must meet in one place, whatever TMPDIR says)
_POLL_S = 0.005


class LockStopped(Exception):  # noqa: N818 (an ending, not an error)
    """The wait was ended from another thread."""


class DeviceLock:
    """This process's turn on a GPU; until `name` is called, and where no file can be made, free.

    The caller serialises `share` and `leave`; `stop` may come from any thread.

    Args:
        folder: where everybody finds the files; they are never removed.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._queue: int | None = None
        self._held: int | None = None
        self._shared = False
        self._stopped = threading.Event()

    def name(self, uuid: str) -> None:
        """Say which GPU it is, by its `GPU-...`; the first name counts, and "" is none."""
        if self._held is not None or re.fullmatch(r"[\w-]+", uuid) is None:
            return
        with contextlib.suppress(OSError):
            self._queue = self._opened(f"kernelgen-{uuid}.queue")
            self._held = self._opened(f"kernelgen-{uuid}.lock")

    def stop(self) -> None:
        """End every wait, now and from now on."""
        self._stopped.set()

    def share(self) -> None:
        """Use the GPU beside others, once nobody has it alone or waits for that."""
        if self._queue is None or self._held is None or self._shared:
            return
        self._wait(self._queue, fcntl.LOCK_SH)
        try:
            self._wait(self._held, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        self._shared = True

    def leave(self) -> None:
        """Use the GPU no longer."""
        if self._held is not None and self._shared:
            fcntl.flock(self._held, fcntl.LOCK_UN)
            self._shared = False

    @contextlib.contextmanager
    def alone(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the GPU alone, after `waiting()` if another process has it; not while sharing."""
        if self._queue is None or self._held is None:
            yield
            return
        try:
            self._wait(self._queue, fcntl.LOCK_EX, waiting)
            self._wait(self._held, fcntl.LOCK_EX, waiting)
            yield
        finally:
            fcntl.flock(self._held, fcntl.LOCK_UN)
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _wait(self, file: int, how: int, waiting: Callable[[], None] = lambda: None) -> None:
        # Not in the kernel: ^C has to end it.
        told = False
        while not self._stopped.is_set():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, how | fcntl.LOCK_NB)
                return
            if not told:
                told = True
                waiting()
            self._stopped.wait(_POLL_S)
        raise LockStopped

    def _opened(self, name: str) -> int:
        """Open a file that every user may lock; a link in its place is none."""
        path, flags = self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            # Without O_CREAT: what another user made in a sticky folder opens only so.
            file = os.open(path, flags)
        except FileNotFoundError:
            file = os.open(path, flags | os.O_CREAT, 0o444)
        weakref.finalize(self, os.close, file)
        return file
