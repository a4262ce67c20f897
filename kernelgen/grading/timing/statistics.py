"""Medians and quartiles, and intervals for how much faster one thing is than another.

`docs/statistics.md` explains the words to users. Nothing here is drawn at random: the same samples
always give the same figures.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from kernelgen.grading.timing.resampling import (
    bounds,
    expanded_tail,
    ratio_bounds,
    resampled_median,
    student,
)
from kernelgen.grading.timing.times import Speedup

# With fewer, no interval between two of the samples covers a median in 95 % of the cases:
# 1 - 2 * 0.5**5 is 0.938.
_FEWEST_FOR_RANKS = 6
_FENCES = 1.5
# Events on an H200 step by 0.03 us, and two neighbouring calls differ by more.
_LEAST_RESOLUTION_MS = 1e-4
# What CUDA's manual promises of events.
_PROMISED_RESOLUTION_MS = 5e-4
# A little more than 1.024 us, by which the events of some GPUs step.
_COARSEST_MS = 1.1e-3
_ROUNDING_MS = 1e-6
# Where a process's memory lies is the same for all its samples. One GroupNorm graded against itself
# 20 times on an H200 (benchmarks/h200/itself): the medians had a standard deviation of 0.07 %, and
# only 17 intervals of the samples alone contained 1; 19 of them do with this.
_BETWEEN_PROCESSES = 5e-4


def median(values: Sequence[float]) -> float:
    """Return the median.

    Raises:
        ValueError: there are no values.
    """
    return _quantile(values, 0.5)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile, interpolated between samples (Hyndman's type 7).

    Raises:
        ValueError: there are no values.
    """
    return _quantile(values, 0.25), _quantile(values, 0.75)


def outliers(times_ms: Sequence[float]) -> int:
    """Count the samples outside Tukey's fences: 1.5 times the quartiles' distance beyond them.

    Where the clock is coarser than that distance, the fences stand 1.5 of its steps away. Of 20
    samples of a normal distribution, one or more lie outside in 29 % of the draws.

    Raises:
        ValueError: there are no values.
    """
    first, third = quartiles(times_ms)
    reach = _FENCES * max(third - first, resolution_ms(times_ms))
    return sum(not first - reach <= value <= third + reach for value in times_ms)


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


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> Speedup:
    """Return how many times as fast as the baseline the candidate is, with a 95 % interval.

    The two were sampled in blocks, one of each a block. The figure is the median over the blocks of
    the ratio of the two times: what a block has in common (clock, temperature) cancels in it, which
    it does not in the ratio of the medians. The interval is the bootstrap's over whole blocks, with
    the expanded percentiles of Hesterberg, What Teachers Should Know About the Bootstrap (2015),
    section 5.3, for a plain one is too narrow with few samples. With fewer than six blocks it also
    contains Student's interval for the mean logarithm of the ratio. It is at least as wide as half
    a step of the clock in each median makes it, and is widened to either side by what differs from
    process to process and no sample of one run can show.

    Args:
        baseline_ms: times of the baseline, all above 0, at least two.
        candidate_ms: of the candidate, of the same blocks in the same order.

    Raises:
        ValueError: the lists differ in length, or there are fewer than two blocks.
    """
    if len(baseline_ms) != len(candidate_ms):
        raise ValueError("the samples are not paired")
    count = len(baseline_ms)
    _require_two(count)
    ratios = block_ratios(baseline_ms, candidate_ms)
    low, high = bounds(resampled_median(ratios), expanded_tail(count))
    if count < _FEWEST_FOR_RANKS:
        mean, variance = _log_moments(ratios)
        reach = student(count - 1) * math.sqrt(variance)
        low, high = min(low, math.exp(mean - reach)), max(high, math.exp(mean + reach))
    step_ms = resolution_ms(baseline_ms, candidate_ms)
    coarse = _coarse_bounds(median(baseline_ms), median(candidate_ms), step_ms)
    low, high = min(low, coarse[0]), max(high, coarse[1])
    interval = (low * (1.0 - _BETWEEN_PROCESSES), high * (1.0 + _BETWEEN_PROCESSES))
    return Speedup(median=median(ratios), ci95=interval)


def unpaired_speedup(
    before: Sequence[float], after: Sequence[float], *, step: float = 0.0
) -> Speedup:
    """Return median(before) / median(after) with a 95 % interval, of two runs apart.

    The bootstrap resamples each run by itself, with the percentiles and, for few samples, Student's
    interval (Welch's, with the degrees of freedom of the smaller run) as in `speedup`. What differs
    from run to run beside the samples (clock, temperature, other users) is not in the interval.

    Args:
        before: times of one thing in a run, in ms or any other unit, all above 0, at least two.
        after: its times in another run.
        step: of the clock that took them, in the same unit.

    Raises:
        ValueError: there are fewer than two of either.
    """
    least = min(len(before), len(after))
    _require_two(least)
    medians = resampled_median(before), resampled_median(after)
    low, high = ratio_bounds(*medians, expanded_tail(least))
    if least < _FEWEST_FOR_RANKS:
        (top, top_variance), (bottom, variance) = _log_moments(before), _log_moments(after)
        reach = student(least - 1) * math.sqrt(top_variance + variance)
        difference = top - bottom
        low, high = min(low, math.exp(difference - reach)), max(high, math.exp(difference + reach))
    estimate = median(before) / median(after)
    coarse = _coarse_bounds(median(before), median(after), step)
    return Speedup(median=estimate, ci95=(min(low, coarse[0]), max(high, coarse[1])))


def block_ratios(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> list[float]:
    """Return baseline over candidate of each block."""
    return [top / bottom for top, bottom in zip(baseline_ms, candidate_ms, strict=True)]


def _quantile(values: Sequence[float], part: float) -> float:
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _require_two(count: int) -> None:
    if count < 2:  # noqa: PLR2004 (the word is in the name)
        raise ValueError("one sample has no interval; two are the least")


def _coarse_bounds(top: float, bottom: float, step: float) -> tuple[float, float]:
    """Return what a ratio may be whose two sides are known to half a step of the clock."""
    half = min(0.5 * step, 0.5 * top, 0.5 * bottom)
    return (top - half) / (bottom + half), (top + half) / (bottom - half)


def _log_moments(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the logarithms, and the variance of that mean."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    spread = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return mean, spread / len(logs)
