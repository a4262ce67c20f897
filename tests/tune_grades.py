"""A grader made up for the tests of `kernelgen tune`: times by schedule, read from the header."""

import re
from collections.abc import Callable, Mapping

from kernelgen.grading.verdict import Status
from kernelgen.tuning.record import Result
from kernelgen.tuning.search import Phase

Numbers = Mapping[str, int]
_SCHEDULE = re.compile(r"^# schedule: (.*(?:\n#   .*)*)$", re.MULTILINE)


def numbers_in(text: str) -> dict[str, int]:
    """Return the schedule that a solution's header names."""
    found = _SCHEDULE.search(text)
    assert found is not None
    pairs = (word.partition("=") for word in found.group(1).replace("#", " ").split())
    return {name: int(value) for name, _, value in pairs}


def timed(time_ms: float, spread_ms: float = 0.0) -> Result:
    """Return a pass with this median and quartiles to both sides of it."""
    quartiles_ms = (time_ms - spread_ms, time_ms + spread_ms)
    return Result(status=Status.PASSED, time_ms=time_ms, quartiles_ms=quartiles_ms, device="a CPU")


def failed(status: Status = Status.WRONG_VALUES, reason: str = "wrong by 3.0") -> Result:
    """Return what a schedule that fails comes to."""
    return Result(status=status, reason=reason, device="a CPU")


class Grades:
    """Grades by a rule from a schedule to a result, and remembers what it was asked.

    Args:
        rule: of the schedule's numbers; a number is a time in ms without any noise.
    """

    def __init__(self, rule: Callable[[Numbers], Result | float]) -> None:
        self.rule = rule
        self.asked: list[dict[str, int]] = []

    def __call__(self, text: str, phase: Phase) -> Result:
        """Grade a text."""
        phase("timing")
        numbers = numbers_in(text)
        self.asked.append(numbers)
        found = self.rule(numbers)
        return found if isinstance(found, Result) else timed(found)
