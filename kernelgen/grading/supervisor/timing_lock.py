"""The lock that keeps times honest where several files are graded at once."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from kernelgen.grading.supervisor.device_lock import DeviceLock, LockStopped

__all__ = ["LockStopped", "TimingLock"]


class TimingLock:
    """Lets any number of files be built and checked at once, or one be timed.

    A file that is to be timed waits until every other one has ended or waits as well, and stops
    what can be stopped, such as compilers; nothing begins meanwhile. A candidate that waits is
    stopped, like everywhere between two calls. Once `on_device` has said which GPU is used, the
    same holds against other processes that grade on it, their compilers aside.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turn = threading.Lock()
        self._owner: int | None = None
        self._working = 0
        self._want_it_alone = 0
        # By thread: what stops its work at any time, and what lets it go on.
        self._pausable: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._device = DeviceLock()

    def on_device(self, uuid: str) -> None:
        """Keep from now on to the turns of everybody who grades on this GPU."""
        self._device.name(uuid)

    def stop(self) -> None:
        """End every wait for other processes: whoever waits gets LockStopped."""
        self._device.stop()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Use the device beside others, once none is being timed; nothing new within `alone`."""
        if self.is_mine:
            yield
            return
        self._begin()
        try:
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

    @contextlib.contextmanager
    def pausable(self, pause: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
        """Within `working`: do what is stopped by `pause()` while another file is timed.

        Both are called in another thread, at any time until the context is left.
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
                self._add(working=1, want_it_alone=-1)

    @contextlib.contextmanager
    def _alone(self, waiting: Callable[[], None]) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._working)
        with self._device.alone(waiting):
            with self._change:
                self._owner = threading.get_ident()
                paused = dict(self._pausable)
                for pause, _ in paused.values():
                    pause()
            try:
                yield
            finally:
                with self._change:
                    self._owner = None
                    for thread, (_, resume) in paused.items():
                        if thread in self._pausable:
                            resume()

    def _begin(self) -> None:
        """Begin to work once none waits to be timed."""
        with self._change:
            self._change.wait_for(lambda: not self._want_it_alone)
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
