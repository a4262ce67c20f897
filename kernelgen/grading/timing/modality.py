"""Whether samples fall into two groups that lie apart, as where a clock has two settings.

Two normal distributions are fitted beside the shapes that one group may have: normal, uniform, and
lognormal with a long tail on either side. Only if the two explain the samples far better than any
of those are there two groups. What "far" has to be was found by simulation, so that samples of one
group (normal, uniform, exponential, lognormal up to a sigma of 1, Student's t with 3 degrees of
freedom, Laplace, Gumbel, triangular) are called two in less than 2 % of the draws. Two groups of
30 % and 70 % whose means are 6 standard deviations apart are found in 30 % of the draws of 10
samples, 82 % of 20, 97 % of 30 and 99.9 % of 50; 12 apart, in 93 % of 10. No test does much better:
with 10 samples of such groups, even one that knew both shapes in advance would miss one in seven.
"""

import math
from collections.abc import Callable, Sequence

from kernelgen.grading.timing.statistics import median, resolution_ms

_FEWEST = 10
_LEAST_SHARE = 0.2
# How much of the median is added to the distances from the nearest sample, so that the logarithm of
# that one's exists. Little of it bends a symmetric shape too much, much of it no shape at all.
_OFFSET = 0.2
_ONE_NORMAL = 0.5 * math.log(2 * math.pi * math.e)


def is_bimodal(times_ms: Sequence[float]) -> bool:
    """Return whether the samples fall into two groups; False for fewer than 10, which cannot tell.

    See `groups`.
    """
    return groups(times_ms) is not None


def groups(times_ms: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the lower and the upper group that samples fall into, each sorted; None if into one.

    Each has at least a fifth of the samples: fewer are outliers. Groups that the steps of the clock
    explain are one.

    Args:
        times_ms: any number of times in any order.
    """
    ordered = sorted(times_ms)
    if len(ordered) < _FEWEST:
        return None
    noise = resolution_ms(ordered) ** 2 / 12  # of rounding to a step
    least = max(2, math.ceil(_LEAST_SHARE * len(ordered)))
    sizes = range(least, len(ordered) - least + 1)
    two, size = max((_two_normals(ordered, size, noise), size) for size in sizes)
    one = max(shape(ordered, noise) for shape in _SHAPES)
    if two - one <= _needed(len(ordered)):
        return None
    return tuple(ordered[:size]), tuple(ordered[size:])


def _needed(count: int) -> float:
    """Return by how much the logarithms of the likelihoods have to differ; from simulation."""
    return max(3.3, 5.0 - count / 15)


def _two_normals(ordered: Sequence[float], size: int, noise: float) -> float:
    """Return the log likelihood of two normals of the same width, the first with `size` samples."""
    count = len(ordered)
    spread = _spread(ordered[:size]) + _spread(ordered[size:])
    share = size / count
    mixing = share * math.log(share) + (1 - share) * math.log1p(-share)
    return count * (mixing - 0.5 * math.log(spread / count + noise) - _ONE_NORMAL)


def _normal(ordered: Sequence[float], noise: float) -> float:
    variance = _spread(ordered) / len(ordered) + noise
    return -len(ordered) * (0.5 * math.log(variance) + _ONE_NORMAL)


def _uniform(ordered: Sequence[float], noise: float) -> float:
    count = len(ordered)
    width = (ordered[-1] - ordered[0]) * (count + 1) / (count - 1)  # unbiased
    return -count * math.log(width + math.sqrt(12 * noise))


def _long_tail(ordered: Sequence[float], noise: float) -> float:
    """Return the log likelihood of a lognormal that begins a little below the first sample."""
    distances = [value - ordered[0] for value in ordered]
    offset = _OFFSET * median(distances) + math.sqrt(noise)
    logs = [math.log(distance + offset) for distance in distances]
    narrowest = noise / (offset + distances[-1]) ** 2
    return _normal(logs, narrowest) - math.fsum(logs)


def _long_head(ordered: Sequence[float], noise: float) -> float:
    return _long_tail([-value for value in reversed(ordered)], noise)


def _spread(values: Sequence[float]) -> float:
    """Return the sum of the squared distances from the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


_Shape = Callable[[Sequence[float], float], float]
_SHAPES: tuple[_Shape, ...] = (_normal, _uniform, _long_tail, _long_head)
