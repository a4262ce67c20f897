"""Quartiles, intervals of medians, and how much faster one thing is than another.

Medians are the standard library's. Intervals come from order statistics: exact, whatever the
distribution, and nothing is drawn at random. `docs/statistics.md` explains the words to users.
"""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import median

from kernelgen.grading.timing.times import Speedup

# One 40th, 2.5 %, may lie beyond an interval on either side.
_TAILS = 40
# Lord, The Use of Range in Place of Standard Deviation in the t-Test, Biometrika 34 (1947): of so
# many normal values, 95 % of the means are this many ranges or less away from the true one.
_RANGES_FROM_MEAN = {2: 6.353, 3: 1.304, 4: 0.717, 5: 0.507}
# Events on an H200 step by 0.03 us, and two neighbouring calls differ by more.
_LEAST_RESOLUTION_MS = 1e-4
# Resolution of events by CUDA's manual.
_PROMISED_RESOLUTION_MS = 5e-4
# A little more than 1.024 us, by which the events of some GPUs step.
_COARSEST_MS = 1.1e-3
_ROUNDING_MS = 1e-6
# Where a process's memory lies is the same for all its samples: more of them do not show it. One
# GroupNorm graded against itself 20 times on an H200 (benchmarks/h200/itself): the medians had a
# standard deviation of 0.07 %.
_BETWEEN_PROCESSES = 5e-4


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile, interpolated between samples (Hyndman's type 7).

    Raises:
        ValueError: there are no values.
    """
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def resolution_ms(*subjects: Sequence[float]) -> float:
    """Return the step of the clock that took these times, in ms, as far as they show it.

    Where at most half of a subject's samples are different from each other, the smallest difference
    is the clock's step, unless it is more than any clock's. Then, and where all are the same, what
    CUDA's manual promises of events is taken, 0.0005 ms. It is never less than 0.0001 ms.
    """
    steps = [_LEAST_RESOLUTION_MS]
    for times_ms in subjects:
        different = sorted({round(value / _ROUNDING_MS) for value in times_ms})
        if 2 * len(different) <= len(times_ms):
            gaps = (high - low for low, high in pairwise(different))
            smallest = min(gaps, default=0) * _ROUNDING_MS
            seen = 0.0 < smallest <= _COARSEST_MS
            steps.append(smallest if seen else _PROMISED_RESOLUTION_MS)
    return max(steps)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval that holds the median with at least 95 %, whatever the distribution.

    The ends are two of the values: as many are left out on each side as leave no more than 2.5 % of
    a binomial distribution of n and 1/2 beyond them (Conover, Practical Nonparametric Statistics,
    1999, section 3.2). None with fewer than six values, where even the outermost two hold the
    median less often: of five in 93.8 %.
    """
    left_out = _left_out(len(values))
    if left_out < 0:
        return None
    ordered = sorted(values)
    return ordered[left_out], ordered[-1 - left_out]


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> Speedup:
    """Return how many times as fast as the baseline the candidate is, with a 95 % interval.

    The two were sampled in blocks, one of each a block. The figure is the median over the blocks of
    the ratio of the two times: what a block has in common (clock, temperature) cancels in it, which
    it does not in the ratio of the medians. The interval is that of this median. It is at least as
    wide as half a step of the clock in each median makes it, and is widened to either side by what
    differs from process to process and no sample of one run can show.

    Args:
        baseline_ms: times of the baseline, all above 0, at least two.
        candidate_ms: of the candidate, of the same blocks in the same order.

    Raises:
        ValueError: the lists differ in length, or there are fewer than two blocks.
    """
    pairs = zip(baseline_ms, candidate_ms, strict=True)
    ratios = [baseline / candidate for baseline, candidate in pairs]
    low, high = _interval(ratios)
    step_ms = resolution_ms(baseline_ms, candidate_ms)
    coarse = _coarse_bounds(median(baseline_ms), median(candidate_ms), step_ms)
    low, high = min(low, coarse[0]), max(high, coarse[1])
    interval = (low * (1.0 - _BETWEEN_PROCESSES), high * (1.0 + _BETWEEN_PROCESSES))
    return Speedup(median=median(ratios), ci95=interval)


def unpaired_speedup(
    before: Sequence[float], after: Sequence[float], *, step: float = 0.0
) -> Speedup:
    """Return median(before) / median(after) with a 95 % interval, of two runs apart.

    The interval goes from the least to the largest ratio that the 95 % intervals of both medians
    allow. That is more than 95 % where both vary: their deviations add up as squares, the intervals
    as they are. What differs from run to run beside the samples (clock, temperature, other users)
    is not in the interval.

    Args:
        before: times of one thing in a run, in ms or any other unit, all above 0, at least two.
        after: its times in another run.
        step: of the clock that took them, in the same unit.

    Raises:
        ValueError: there are fewer than two of either.
    """
    (low, high), (least, most) = _interval(before), _interval(after)
    estimate = median(before) / median(after)
    coarse = _coarse_bounds(median(before), median(after), step)
    interval = (min(low / most, coarse[0]), max(high / least, coarse[1]))
    return Speedup(median=estimate, ci95=interval)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return `median_interval`; for 2 to 5 values, one that assumes that they are lognormal."""
    if (exact := median_interval(values)) is not None:
        return exact
    if len(values) < min(_RANGES_FROM_MEAN):
        raise ValueError("one sample has no interval; two are the least")
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    reach = _RANGES_FROM_MEAN[len(logs)] * (max(logs) - min(logs))
    return min(*values, math.exp(mean - reach)), max(*values, math.exp(mean + reach))


@lru_cache(maxsize=64)
def _left_out(count: int) -> int:
    """Return how many of so many values lie outside the interval on each side, or -1."""
    out, ways, tail = 0, 1, 0
    while _TAILS * (tail + ways) <= 2**count:
        tail += ways
        ways = ways * (count - out) // (out + 1)
        out += 1
    return out - 1


def _coarse_bounds(top: float, bottom: float, step: float) -> tuple[float, float]:
    """Return what a ratio may be whose two sides are known to half a step of the clock."""
    half = min(0.5 * step, 0.5 * top, 0.5 * bottom)
    return (top - half) / (bottom + half), (top + half) / (bottom - half)
