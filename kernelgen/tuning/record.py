"""What a search for a schedule found. The JSON of `kernelgen tune` is `TuneRun`."""

from enum import Enum
from statistics import median

import msgspec

from kernelgen.grading.verdict import Owner, Status

SCHEMA_VERSION = 1
PRESENT = "the present schedule"


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What grading one solution came to.

    Attributes:
        status, owner, reason: of its verdict.
        time_ms: median of its timed calls; absent unless it passed.
        quartiles_ms: first and third of them.
        device: on which it was graded.
    """

    status: Status
    owner: Owner = Owner.CANDIDATE
    reason: str = ""
    time_ms: float | None = None
    quartiles_ms: tuple[float, float] | None = None
    device: str = ""

    def clearly_below(self, other: "Result") -> bool:
        """Whether it passed and is faster by more than the middle halves of the samples vary."""
        if self.quartiles_ms is None or other.quartiles_ms is None:
            return False
        return self.quartiles_ms[1] < other.quartiles_ms[0]


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One schedule that was graded.

    Attributes:
        schedule: all its numbers by name.
        result: of grading it.
        seconds: that this took.
    """

    schedule: dict[str, int]
    result: Result
    seconds: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The present schedule and the best one found, graded by turns.

    Attributes:
        present_ms, best_ms: median times, one a grade.
        failure: why a grade has none, which ends the comparison.
    """

    present_ms: tuple[float, ...]
    best_ms: tuple[float, ...]
    failure: str = ""

    @property
    def gain_ms(self) -> float:
        """By how much the best one is faster, median against median."""
        return median(self.present_ms) - median(self.best_ms)

    @property
    def spread_ms(self) -> float:
        """How far grades of one and the same schedule lie apart."""
        return max(max(times) - min(times) for times in (self.present_ms, self.best_ms))

    @property
    def convincing(self) -> bool:
        """Whether the best one is faster by more than the grades of one schedule differ."""
        return not self.failure and self.gain_ms > self.spread_ms


class Outcome(str, Enum):
    """What becomes of the best schedule."""

    RECORDED = "recorded"
    DRY_RUN = "dry run"
    NOT_RECORDED = "not recorded"
    STAYS = "stays"


class TuneRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole search.

    Attributes:
        schema: of this record.
        problem: its name.
        backend: `cuda` or `cpp`.
        arch: what was searched for, `sm_90` and the like or `cpu`.
        device: on which it was done.
        budget_s: wall time that the search was given; the comparison at the end comes on top.
        complete: no number's values were left to try when the search ended.
        present: numbers of the schedule that it began with.
        trials: in order; the first is the present schedule.
        best: numbers of the fastest one that passed; absent if none was clearly faster.
        comparison: of the two; absent without a best one.
        outcome: what became of the best schedule.
        entry: numbers that differ from the defaults, which are or should be recorded; empty where
            the defaults won; absent if the present schedule stays.
    """

    schema: int
    problem: str
    backend: str
    arch: str
    device: str
    budget_s: float
    complete: bool
    present: dict[str, int]
    trials: tuple[Trial, ...]
    best: dict[str, int] | None = None
    comparison: Comparison | None = None
    outcome: Outcome
    entry: dict[str, int] | None = None
