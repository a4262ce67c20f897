"""What the second clock says: CUPTI's time stamps of further calls, with the events of the same."""

from __future__ import annotations

from collections.abc import Iterable

from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.wire import messages as m

# Of each subject; fewer where a call takes long.
_CALLS = 3
_FEWER_CALLS = 2
_LONG_CALL_MS = 100.0

Readings = dict[str, tuple[float, ...]]
"""Subject -> one number a call."""


class SecondClockReader:
    """Reads the second clock in one session, on a GPU.

    Args:
        dialogue: with both workers.

    Attributes:
        events_us: what two events add to a time by this clock; None before `start`, and where there
            is no such clock.
        spans_us: from the start of a call's first kernel to the end of its last.
        beside_ms: the same calls by events.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self.events_us: float | None = None
        self.spans_us: Readings = {}
        self.beside_ms: Readings = {}

    def start(self) -> None:
        """Have the oracle hold the two clocks against each other."""
        asked = self._dialogue.ask_oracle(m.MeasureEvents(), m.EventsMeasured)
        self.events_us = asked.events_us

    def calls(self, call_ms: float) -> int:
        """Return how many calls of each subject it is to time.

        Args:
            call_ms: that one of the candidate takes.
        """
        if self.events_us is None:
            return 0
        return _CALLS if call_ms < _LONG_CALL_MS else _FEWER_CALLS

    def note(self, called: m.Called) -> None:
        """Take in a traced call of the candidate's."""
        trace = called.trace
        if self.events_us is None:
            return
        # A graph whose kernels the profiler did not see has no beginning and no end.
        if trace is not None and trace.span_us and not trace.unseen_graphs:
            self._add(CANDIDATE, (trace.span_us,), (called.elapsed_ms,))

    def read_baselines(self, names: Iterable[str], calls: int) -> None:
        """Have the baselines timed, if the candidate could be."""
        if not self.spans_us:
            return
        for name in names:
            asked = m.SpanBaseline(name=name, calls=calls)
            found = self._dialogue.ask_oracle(asked, m.Spans)
            self._add(name, found.spans_us, found.elapsed_ms)

    def _add(self, subject: str, spans_us: tuple[float, ...], ms: tuple[float, ...]) -> None:
        self.spans_us[subject] = (*self.spans_us.get(subject, ()), *spans_us)
        self.beside_ms[subject] = (*self.beside_ms.get(subject, ()), *ms)
