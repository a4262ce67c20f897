"""A grader made up for the tests of `kernelgen tune`: times by schedule."""

from collections.abc import Callable, Mapping

import msgspec
from report_runs import TIMING, passed
from report_runs import failed as failed_verdict

from kernelgen.engines.schedule import Schedule
from kernelgen.grading.timing.times import CANDIDATE, Subject
from kernelgen.grading.verdict import Status, Verdict

Numbers = Mapping[str, int]


def timed(time_ms: float, spread_ms: float = 0.0) -> Verdict:
    """Return a pass with this median and quartiles to both sides of it."""
    quartiles_ms = (time_ms - spread_ms, time_ms + spread_ms)
    subject = Subject(what="it", median_ms=time_ms, quartiles_ms=quartiles_ms)
    timing = msgspec.structs.replace(
        TIMING, candidate_ms=time_ms, speedup={}, subjects={CANDIDATE: subject}
    )
    return passed(timing=timing, device="a CPU")


def failed(status: Status = Status.WRONG_VALUES, reason: str = "wrong by 3.0") -> Verdict:
    """Return what a schedule that fails comes to."""
    return failed_verdict(status, reason=reason, device="a CPU")


class Grades:
    """Grades by a rule from a schedule to a verdict, and remembers what it was asked.

    Args:
        rule: of the schedule's numbers; a number is a time in ms without any noise.
    """

    def __init__(self, rule: Callable[[Numbers], Verdict | float]) -> None:
        self.rule = rule
        self.asked: list[dict[str, int]] = []

    def __call__(self, text: str, name: str, schedule: Schedule) -> Verdict:
        """Grade a text."""
        numbers = msgspec.structs.asdict(schedule)
        assert all(f" {key}={value}" in text for key, value in numbers.items())
        self.asked.append(numbers)
        found = self.rule(numbers)
        verdict = found if isinstance(found, Verdict) else timed(found)
        return msgspec.structs.replace(verdict, solution=name, labels=numbers)
