"""A spool: the verdicts of a run, on the disk until all of them are made."""

import contextlib
from pathlib import Path

import msgspec

from kernelgen.grading.queue.journal import write_at
from kernelgen.grading.verdict import Verdict

_DECODER = msgspec.json.Decoder(tuple[int, Verdict])


class Spool(contextlib.AbstractContextManager["Spool"]):
    """Keeps verdicts in a file, so that a run's memory does not grow with them.

    What a full disk does not take stays in memory. An `add` that ^C ends has kept all or nothing,
    and may be called again.

    Args:
        path: of the file, which is made.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self._end = 0
        self._unwritten: list[tuple[int, Verdict]] = []

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, index: int, verdict: Verdict) -> None:
        """Keep a verdict.

        Args:
            index: of its file in the run.
            verdict: of the file.
        """
        line = msgspec.json.encode((index, verdict)) + b"\n"
        try:
            write_at(self._file.fileno(), line, self._end)
        except OSError:
            self._unwritten.append((index, verdict))
        else:
            self._end += len(line)

    def read(self) -> tuple[Verdict, ...]:
        """Return all verdicts, in the order of the run's files."""
        kept = dict(self._unwritten)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            lines.seek(0)
            while lines.tell() < self._end:
                index, verdict = _DECODER.decode(lines.readline())
                kept[index] = verdict
        return tuple(kept[index] for index in sorted(kept))
