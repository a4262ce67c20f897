"""The worth of a verdict as a number, for programs that train on it: `Verdict.reward`."""

import math

import msgspec

from kernelgen.errors import UserError


class RewardPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The worth of a verdict: `correct + per_speedup * min(speedup, most)`, or `failed`.

    The speedup is the lower end of its 95 % interval, never the median: noise earns nothing. One
    that is not known counts as 0.

    Attributes:
        failed: of a candidate that did not pass.
        correct: of a pass, whatever its time.
        per_speedup: for each times of the baseline's speed.
        most: speedup beyond which nothing is added.
        baseline: that the speedup is over, such as `eager`.

    Raises:
        UserError: a number is not finite, or a pass could earn less than a failure.
    """

    failed: float = 0.0
    correct: float = 0.3
    per_speedup: float = 1.0
    most: float = 10.0
    baseline: str = "eager"

    def __post_init__(self) -> None:
        numbers = (self.failed, self.correct, self.per_speedup, self.most)
        if not all(map(math.isfinite, numbers)) or min(self.per_speedup, self.most) < 0:
            raise UserError(f"reward: expected finite numbers, per_speedup and most from 0: {self}")
        if self.correct < self.failed:
            raise UserError(f"reward: correct {self.correct} is below failed {self.failed}")
