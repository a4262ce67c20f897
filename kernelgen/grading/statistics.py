"""Medians, and an interval for the ratio of two of them."""

import random
from collections.abc import Sequence

from kernelgen.grading.times import Speedup

_RESAMPLES = 1000


def median(values: Sequence[float]) -> float:
    """Return the median.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return 0.5 * (ordered[middle - 1] + ordered[middle])


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> Speedup:
    """Return median(baseline) / median(candidate) with a 95 % percentile-bootstrap interval.

    The two were sampled in blocks, one of each a block; whole blocks are resampled, so that what a
    block has in common (clock, temperature) does not widen the interval. Efron and Tibshirani, An
    Introduction to the Bootstrap (1993), chapter 13. The resampling is seeded: the same samples
    always give the same interval.

    Raises:
        ValueError: the lists differ in length or are empty.
    """
    if len(baseline_ms) != len(candidate_ms):
        raise ValueError("the samples are not paired")
    estimate = median(baseline_ms) / median(candidate_ms)
    count = len(baseline_ms)
    draw = random.Random(count)  # noqa: S311 (statistics, not secrets)
    ratios = []
    for _ in range(_RESAMPLES):
        blocks = draw.choices(range(count), k=count)
        top = median([baseline_ms[block] for block in blocks])
        ratios.append(top / median([candidate_ms[block] for block in blocks]))
    ratios.sort()
    low, high = ratios[int(0.025 * _RESAMPLES)], ratios[int(0.975 * _RESAMPLES)]
    return Speedup(median=estimate, ci95=(low, high))
