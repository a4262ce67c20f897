"""How long what is left will take, told from what is done."""

import time

# Less than this is over before it has been read.
_LEAST_S = 2.0
_MINUTE_S = 60.0


class Remaining:
    """Counts what is done of so many things, one after another or several at once.

    Args:
        total: how many there are.
    """

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._began = time.monotonic()

    def one_done(self) -> None:
        """Count one more."""
        self._done += 1

    @property
    def how_far(self) -> str:
        """Return how far it is, such as `3 of 12, about 40 s left`."""
        left = self.left
        return f"{self._done} of {self._total}" + (f", {left}" if left else "")

    @property
    def left(self) -> str:
        """Return how long it will take yet, such as `about 2 min left`; "" if nobody can tell."""
        if not self._done:
            return ""
        seconds = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        if seconds < _LEAST_S:
            return ""
        if seconds < 2 * _MINUTE_S:
            return f"about {seconds:.0f} s left"
        return f"about {seconds / _MINUTE_S:.0f} min left"
