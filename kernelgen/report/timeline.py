"""A run's phases as a timeline, in Chrome's trace format: https://ui.perfetto.dev shows it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.destination import write_whole
from kernelgen.grading.options import Observer
from kernelgen.grading.verdict import Verdict

_Span = tuple[str, float, float]  # what a row says, and when it began and ended in seconds


class Timeline:
    """An observer that notes when phases begin and end, and tells another one of them."""

    _told: Observer

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self._open: dict[int, tuple[str, float]] = {}
        self._spans: dict[int, list[_Span]] = {}

    def telling(self, other: Observer) -> "Timeline":
        """Return itself, and tell the other observer from now on."""
        self._told = other
        return self

    def begin(self, solutions: Sequence[str]) -> None:
        """Take the files' names."""
        self._names = solutions
        self._told.begin(solutions)

    def phase(self, index: int, text: str) -> None:
        """End the phase before, and begin this one."""
        self._end(index)
        self._open[index] = (text, time.monotonic())
        self._told.phase(index, text)

    def finished(self, index: int, verdict: Verdict) -> None:
        """End the last phase."""
        self._end(index)
        self._told.finished(index, verdict)

    def _end(self, index: int) -> None:
        if (one := self._open.pop(index, None)) is not None:
            self._spans.setdefault(index, []).append((*one, time.monotonic()))

    def write(self, path: Path) -> None:
        """Write what has ended, a row for each file that was graded at once.

        Raises:
            UserError: the file cannot be written.
            OSError: the disk is full.
        """
        files = sorted((spans[0][1], index) for index, spans in self._spans.items())
        free_from: list[float] = []  # of each row
        events: list[dict[str, Any]] = []
        for begin, index in files:
            spans = self._spans[index]
            end = spans[-1][2]
            row = next((n for n, free in enumerate(free_from) if free <= begin), len(free_from))
            free_from[row : row + 1] = [end]
            events += [
                {
                    "name": text,
                    "ph": "X",
                    "pid": 1,
                    "tid": row + 1,
                    "ts": 1e6 * (since - files[0][0]),
                    "dur": 1e6 * (until - since),
                    "args": {"file": self._names[index]},
                }
                for text, since, until in ((Path(self._names[index]).stem, begin, end), *spans)
            ]
        write_whole(msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}), path)
