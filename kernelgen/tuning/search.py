"""Coordinate descent over the numbers of a schedule: one after another, until none improves it."""

from collections.abc import Callable, Iterator

import msgspec

from kernelgen.rendering.schedule import Schedule, tried_values
from kernelgen.rendering.schedule_table import replaced
from kernelgen.tuning.record import Result

Measure = Callable[[Schedule], Result | None]
"""Grades a schedule; None if it cannot be rendered or is nothing new."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search ended.

    Attributes:
        best: the fastest schedule that passed.
        complete: no number's values improve it; else the budget was spent first.
    """

    best: Schedule
    complete: bool


def descend(start: Schedule, result: Result, measure: Measure, spent: Callable[[], bool]) -> Found:
    """Return the best schedule that can be reached from another by changing number after number.

    A change counts only if it is clearly faster, so that the search does not follow the noise, and
    neither a number that makes no difference is changed. A trial that has begun is finished.

    Args:
        start: where to begin.
        result: of grading it; it passed.
        measure: grades a schedule.
        spent: whether the budget is, asked before each trial.
    """
    best = start
    while True:
        before = best
        for name, value in _moves(start):
            schedule = replaced(best, {name: value})
            if schedule is None or schedule == best:
                continue
            if spent():
                return Found(best=best, complete=False)
            measured = measure(schedule)
            if measured is not None and measured.clearly_below(result):
                best, result = schedule, measured
        if best == before:
            return Found(best=best, complete=True)


def _moves(start: Schedule) -> Iterator[tuple[str, int]]:
    for name, values in tried_values(type(start)).items():
        yield from ((name, value) for value in values)
