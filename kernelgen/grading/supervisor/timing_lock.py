"""The locks that keep times honest, between the files of a run and between processes on a GPU.

And the room that main cases of a run have on a GPU before one of them is timed.
"""

import contextlib
import fcntl
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelgen.grading.queue.job import LaneStopped

FOLDER = Path("/tmp")  # noqa: S108 (all users must meet in one place, whatever TMPDIR says)
_POLL_S = 0.005
# Files timed in a row while others wait to begin, whose compilers then run beside the next ones.
_MOST_IN_A_ROW = 4


class Displaced(Exception):  # noqa: N818 (nobody's mistake)
    """The candidate was ended, so that another could be timed: it is to be graded again, alone."""


class DeviceLock:
    """This process's turn on a GPU: many build and check, or one times.

    Until `name` is called, and where no file can be made, it is free.

    Two files in the folder for temporary files that all users share hold the turns by `flock`,
    which ends with the process that holds it, however that ended. Who wants the GPU alone holds the
    first file while it waits for the second, so that those who come later wait behind it.

    The caller serialises `name`, `share` and `leave`; `stop` may come from any thread.

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
        raise LaneStopped

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


class TimingLock:
    """Lets any number of files be built and checked at once, or one be timed.

    A file that is to be timed waits until every other one has ended or waits as well, and stops
    what can be stopped, such as compilers. Nothing begins meanwhile; once a few have been timed in
    a row, all that wait to begin do so before the next one. A candidate that waits is stopped, like
    everywhere between two calls. Once `on_device` has said which GPU is used, the
    same holds against other processes that grade on it, their compilers aside.

    Attributes:
        crowded: strangers use the device, whom nobody here can end.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turn = threading.Lock()
        self._owner: int | None = None
        self._working = 0
        self._want_it_alone = 0
        # How many wait to begin, how many of those need not wait for more to be timed.
        self._beginning = self._admitted = self._in_a_row = 0
        # By thread: what stops its work at any time, and what lets it go on.
        self._pausable: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        self.crowded = False
        self._endable: dict[int, Callable[[], None]] = {}
        self._device = DeviceLock()

    def on_device(self, uuid: str) -> None:
        """Keep from now on to the turns of everybody who grades on this GPU."""
        with self._change:
            self._device.name(uuid)

    def stop(self) -> None:
        """End every wait for other processes: whoever waits gets LaneStopped."""
        self._device.stop()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Use the device beside others, once few are timed; nothing new within `alone`."""
        if self.is_mine:
            yield
            return
        try:
            # It counts, even where it raises because all is stopped.
            self._begin()
            yield
        finally:
            self._add(working=-1)

    @property
    def is_mine(self) -> bool:
        """Whether this thread is alone."""
        return self._owner == threading.get_ident()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Within `working`, not `alone`: wait for another, who may be timed meanwhile."""
        self._add(working=-1)
        try:
            yield
        finally:
            self._begin()

    def give_way(self) -> None:
        """Within `working`: let some be timed first that wait for it."""
        if not self.is_mine:
            self._add(working=-1)
            self._begin()

    @contextlib.contextmanager
    def pausable(self, pause: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
        """Within `working`: do what is stopped by `pause()` while another file is timed.

        Both are called in another thread, each as often as the other.
        """
        if self.is_mine:
            yield
            return
        me = threading.get_ident()
        with self._change:
            self._change.wait_for(lambda: self._owner is None)
            self._pausable[me] = pause, resume
        self._add(working=-1)
        try:
            yield
        finally:
            with self._change:
                del self._pausable[me]
            self._begin()

    @contextlib.contextmanager
    def endable(self, end: Callable[[], None]) -> Iterator[None]:
        """Within `working`: have what one is at ended by `end_others` of who is alone."""
        me = threading.get_ident()
        with self._change:
            self._endable[me] = end
        try:
            yield
        finally:
            with self._change:
                del self._endable[me]

    def end_others(self) -> None:
        """Within `alone`: end what the others are at, in this thread."""
        with self._change:
            others = [end for thread, end in self._endable.items() if thread != self._owner]
        for end in others:
            end()

    @contextlib.contextmanager
    def alone(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within `working`: wait for the others, after `waiting()`, and hold them meanwhile."""
        if self.is_mine:
            yield
            return
        if self._working > 1 or self._want_it_alone:
            waiting()
        self._add(working=-1, want_it_alone=1)
        with self._turn:
            try:
                with self._alone(waiting):
                    yield
            finally:
                # Within the turn: the next one waits until this file's processes are gone, too.
                with self._change:
                    # Not within the process's turn, whose end would end what they share.
                    self._in_a_row = self._in_a_row + 1 if self._beginning else 0
                    if self._in_a_row >= _MOST_IN_A_ROW:
                        self._admitted, self._in_a_row = self._beginning, 0
                    self._add(working=1, want_it_alone=-1)

    @contextlib.contextmanager
    def _alone(self, waiting: Callable[[], None]) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._working and not self._admitted)
        with self._device.alone(waiting):
            with self._change:
                self._owner = threading.get_ident()
                paused = list(self._pausable.values())
                for pause, _ in paused:
                    pause()
            try:
                yield
            finally:
                with self._change:
                    self._owner = None
                    # Also what has answered meanwhile: it will be asked again.
                    for _, resume in paused:
                        resume()

    def _begin(self) -> None:
        """Begin to work once none waits to be timed, or enough were."""
        with self._change:
            self._beginning += 1
            self._change.wait_for(lambda: self._admitted or not self._want_it_alone)
            self._beginning -= 1
            self._admitted = max(0, self._admitted - 1)
            self._add(working=1)

    def _add(self, *, working: int, want_it_alone: int = 0) -> None:
        with self._change:
            self._working += working
            self._want_it_alone += want_it_alone
            self._change.notify_all()
            # While a file is timed by another process, everything here waits for that.
            if self._working:
                self._device.share()
            else:
                self._device.leave()


class Room:
    """Memory of a device for main cases beside each other: first come, first served.

    One that is larger than all of it is let in once nobody else is there.

    Args:
        lock: who waits rests from `working`, so that those inside are timed meanwhile.
    """

    def __init__(self, lock: TimingLock) -> None:
        self._lock = lock
        self._change = threading.Condition()
        self._queue: deque[object] = deque()
        self._taken_bytes = 0
        self._stopped = False

    def stop(self) -> None:
        """End every wait: whoever waits gets LaneStopped."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    @contextlib.contextmanager
    def taken(self, size: int, whole: int, waiting: Callable[[], None]) -> Iterator[None]:
        """Take so many bytes of the whole, after `waiting()` if they are not free.

        Who has the lock alone cannot wait, and takes them anyway.
        """
        me = object()
        size = min(size, whole)

        def is_in() -> bool:
            if self._stopped:
                raise LaneStopped
            fits = self._queue[0] is me and self._taken_bytes + size <= whole
            if fits or self._lock.is_mine:
                self._queue.remove(me)
                self._taken_bytes += size
                self._change.notify_all()
                return True
            return False

        with self._change:
            self._queue.append(me)
            came_in = is_in()
        try:
            if not came_in:
                waiting()
                with self._lock.resting(), self._change:
                    came_in = self._change.wait_for(is_in)
            yield
        finally:
            with self._change:
                if came_in:
                    self._taken_bytes -= size
                else:
                    self._queue.remove(me)
                self._change.notify_all()
