"""A run's phases as a timeline, in Chrome's trace format: https://ui.perfetto.dev shows it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.destination import write_whole
from kernelgen.grading.options import Observer
from kernelgen.grading.verdict import Verdict


class _Span(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of a file; times in seconds."""

    index: int
    text: str
    begin: float
    end: float


class Timeline:
    """An observer that notes when phases begin and end, and tells another one of them."""

    _told: Observer

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self._open: dict[int, tuple[str, float]] = {}
        self._spans: list[_Span] = []

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
            self._spans.append(_Span(index=index, text=one[0], begin=one[1], end=time.monotonic()))

    def write(self, path: Path) -> None:
        """Write what has ended, a row for each file that was graded at once.

        Raises:
            UserError: the file cannot be written.
            OSError: the disk is full.
        """
        files: dict[int, list[_Span]] = {}
        for span in self._spans:
            files.setdefault(span.index, []).append(span)
        start = min((span.begin for span in self._spans), default=0.0)
        free_from: list[float] = []  # of each row
        events: list[dict[str, Any]] = []
        for index, spans in sorted(files.items(), key=lambda item: item[1][0].begin):
            begin, end = spans[0].begin, spans[-1].end
            row = next((n for n, free in enumerate(free_from) if free <= begin), len(free_from))
            free_from[row : row + 1] = [end]
            whole = _Span(index=index, text=Path(self._names[index]).stem, begin=begin, end=end)
            events += [
                {
                    "name": one.text,
                    "ph": "X",
                    "pid": 1,
                    "tid": row + 1,
                    "ts": 1e6 * (one.begin - start),
                    "dur": 1e6 * (one.end - one.begin),
                    "args": {"file": self._names[index]},
                }
                for one in (whole, *spans)
            ]
        write_whole(msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}), path)
