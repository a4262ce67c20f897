"""The second clock's readings, with an invented oracle."""

from typing import Any, cast

import pytest

from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.traced_calls import SecondClockReader
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.trace import Trace


class Oracle:
    """Answers as one with, or without, a second clock."""

    def __init__(self, events_us: float | None) -> None:
        self.events_us = events_us
        self.asked: list[Any] = []

    def ask_oracle(self, message: Any) -> Any:
        """Answer."""
        self.asked.append(message)
        if isinstance(message, m.MeasureEvents):
            return self.events_us
        assert isinstance(message, m.SpanBaseline)
        return m.Spans(spans_us=(7.0,) * message.calls, elapsed_ms=(0.008,) * message.calls)


def started(events_us: float | None) -> tuple[SecondClockReader, Oracle]:
    oracle = Oracle(events_us)
    clock = SecondClockReader(cast(Dialogue, oracle))
    clock.start()
    return clock, oracle


def test_the_candidate_s_spans_and_the_events_of_the_same_calls_are_kept() -> None:
    clock, oracle = started(2.5)
    for span_us in (9.0, 9.5):
        clock.note(Trace(span_us=span_us), 0.012)
    clock.read_baselines({"eager": "as written"}, clock.calls(1.0))
    assert (clock.events_us, clock.calls(1.0), clock.calls(500.0)) == (2.5, 3, 2)
    assert clock.spans_us == {"candidate": (9.0, 9.5), "eager": (7.0, 7.0, 7.0)}
    assert clock.beside_ms == {"candidate": (0.012, 0.012), "eager": (0.008, 0.008, 0.008)}
    assert oracle.asked[1:] == [m.SpanBaseline(name="eager", calls=3)]


@pytest.mark.parametrize("trace", [{}, {"span_us": 9.0, "unseen_graphs": 1}, {"missing": "why"}])
def test_a_candidate_without_a_span_leaves_the_baselines_without_one(trace: dict[str, Any]) -> None:
    clock, oracle = started(2.5)
    clock.note(Trace(**trace), 0.012)
    clock.read_baselines({"eager": "as written"}, 3)
    assert clock.spans_us == {}
    assert len(oracle.asked) == 1


def test_where_the_profiler_cannot_tell_nothing_is_read() -> None:
    clock, oracle = started(None)
    clock.note(Trace(span_us=9.0), 0.012)
    clock.read_baselines({"eager": "as written"}, clock.calls(1.0))
    assert (clock.calls(1.0), clock.spans_us, len(oracle.asked)) == (0, {}, 1)
