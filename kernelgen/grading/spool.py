"""A spool: the verdicts of a run, on the disk until all of them are made."""

import contextlib
import os
from pathlib import Path

import msgspec

from kernelgen.grading.verdict import Verdict

_DECODER = msgspec.json.Decoder(tuple[int, Verdict])


class Spool(contextlib.AbstractContextManager["Spool"]):
    """Keeps verdicts in a file, so that a run's memory does not grow with them.

    What a full disk does not take stays in memory.

    Args:
        path: of the file, which is made.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self._unwritten: list[tuple[int, Verdict]] = []

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, index: int, verdict: Verdict) -> None:
        """Keep a verdict.

        Args:
            index: of its file in the run.
            verdict: of the file.
        """
        left = memoryview(msgspec.json.encode((index, verdict)) + b"\n")
        end = self._file.tell()
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._unwritten.append((index, verdict))
            # The next line is not to follow half a line.
            self._file.truncate(end)
            self._file.seek(end)

    def read(self) -> tuple[Verdict, ...]:
        """Return all verdicts, in the order of the run's files."""
        with os.fdopen(os.dup(self._file.fileno()), "rb") as lines:
            lines.seek(0)
            kept = [*map(_DECODER.decode, lines), *self._unwritten]
        return tuple(verdict for _, verdict in sorted(kept, key=lambda one: one[0]))
