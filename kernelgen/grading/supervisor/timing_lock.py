"""The lock that keeps times honest where several files are graded at once."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class TimingLock:
    """Lets any number of files be built and checked at once, or one be timed.

    A file that is to be timed waits until every other one has ended, or waits as well; none begins
    meanwhile. A candidate that waits is stopped, like everywhere between two calls.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._turn = threading.Lock()
        self._owner: int | None = None
        self._working = 0
        self._want_it_alone = 0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Grade a file beside others, once none is being timed."""
        with self._change:
            self._change.wait_for(lambda: not self._want_it_alone)
            self._working += 1
        try:
            yield
        finally:
            self._add(working=-1)

    @contextlib.contextmanager
    def alone(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within `working`: wait for the others, after `waiting()`, and hold them meanwhile."""
        if self._owner == threading.get_ident():
            yield
            return
        if self._working > 1 or self._want_it_alone:
            waiting()
        self._add(working=-1, want_it_alone=1)
        with self._turn:
            try:
                with self._change:
                    self._change.wait_for(lambda: not self._working)
                self._owner = threading.get_ident()
                yield
            finally:
                self._owner = None
                # Within the turn: the next one waits until this file's processes are gone, too.
                self._add(working=1, want_it_alone=-1)

    def _add(self, *, working: int, want_it_alone: int = 0) -> None:
        with self._change:
            self._working += working
            self._want_it_alone += want_it_alone
            self._change.notify_all()
