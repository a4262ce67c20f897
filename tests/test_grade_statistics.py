"""Quartiles, and the intervals of medians and ratios."""

import math
import random
from collections.abc import Callable
from statistics import median

import pytest

from kernelgen.grading.timing.statistics import (
    median_interval,
    quartiles,
    resolution_ms,
    speedup,
    unpaired_speedup,
)
from kernelgen.grading.timing.times import Speedup


def test_no_values_have_no_quartiles_and_no_interval() -> None:
    with pytest.raises(ValueError, match="at least"):
        quartiles([])
    assert quartiles([3.0]) == (3.0, 3.0)
    assert median_interval([]) is None


def test_quartiles_are_interpolated_between_samples() -> None:
    assert quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (2.0, 4.0)
    assert quartiles([4.0, 1.0, 2.0, 3.0]) == (1.75, 3.25)


def test_the_clock_s_step_is_seen_where_samples_agree() -> None:
    step = 0.001024
    assert resolution_ms([2 * step] * 7 + [3 * step] * 3) == pytest.approx(step)
    assert resolution_ms([1.0, 1.1, 1.21, 1.35], [2 * step] * 7 + [3 * step] * 3) == (
        pytest.approx(step)
    )
    assert resolution_ms([1.0, 1.1, 1.21, 1.35]) == 1e-4
    assert resolution_ms([1.0] * 10) == 5e-4


def test_a_constant_ratio_is_as_sure_as_the_clock() -> None:
    found = speedup([2.0] * 20, [1.0] * 20)
    low, high = found.ci95
    assert found.median == 2.0
    step = (2 - 2.5e-4) / (1 + 2.5e-4), (2 + 2.5e-4) / (1 - 2.5e-4)
    assert (low, high) == pytest.approx((step[0] * 0.9995, step[1] * 1.0005))
    assert speedup([2.0] * 20, [1.9998] * 20).says == "same"
    assert speedup([2.0] * 20, [1.99] * 20).says == "faster"


def test_a_kernel_of_two_steps_of_the_clock_is_not_known_better_than_that() -> None:
    step = 0.001024
    low, high = speedup([3 * step] * 20, [2 * step] * 20).ci95
    assert low < 1.5 < high
    ticking = [2 * step] * 17 + [3 * step] * 3
    low, high = speedup(ticking, ticking[::-1]).ci95
    assert low < 0.7
    assert high > 1.4


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"argument 2 is (shorter|longer)"):
        speedup([1.0, 2.0], [1.0])


def test_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="two are the least"):
        speedup([1.0], [1.0])
    with pytest.raises(ValueError, match="two are the least"):
        unpaired_speedup([1.0, 1.0], [1.0])


def test_the_same_samples_give_the_same_interval_in_any_order_of_blocks() -> None:
    base, mine = [2.0, 2.1, 1.9, 2.2, 2.05, 2.15], [1.0, 1.1, 0.9, 1.05, 1.0, 1.02]
    assert speedup(base, mine) == speedup(base, mine)
    assert speedup(base[::-1], mine[::-1]) == speedup(base, mine)


def test_what_a_block_has_in_common_cancels() -> None:
    calm = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.02]
    drift = [1.0, 1.5, 2.0, 2.5, 3.0, 2.8, 2.2, 1.7, 1.3, 1.1]
    still = speedup([2.0] * 10, calm)
    moving = speedup([2.0 * d for d in drift], [c * d for c, d in zip(calm, drift, strict=True)])
    assert moving.median == pytest.approx(still.median)
    assert moving.ci95 == pytest.approx(still.ci95, rel=1e-3)


def drifting(draw: random.Random, count: int) -> tuple[list[float], list[float]]:
    """Return times of the same thing twice a block, with a drift three times the noise."""
    phase, slope = draw.uniform(0, 6), draw.uniform(-1, 1)
    drift = [1 + 0.03 * (math.sin(6 * n / count + phase) + slope * n / count) for n in range(count)]
    one, other = ([5.0 * d * draw.lognormvariate(0, 0.01) for d in drift] for _ in range(2))
    return one, other


Shape = Callable[[random.Random], float]
ONE_GROUP: dict[str, Shape] = {
    "normal": lambda draw: draw.gauss(5.0, 0.1),
    "uniform": lambda draw: draw.uniform(5.0, 5.4),
    "lognormal": lambda draw: 5.0 + 0.1 * draw.lognormvariate(0.0, 0.5),
    "long tail": lambda draw: 5.0 + 0.1 * draw.lognormvariate(0.0, 1.0),
    "long head": lambda draw: 5.0 - 0.1 * draw.lognormvariate(0.0, 1.0),
    "exponential": lambda draw: 5.0 + draw.expovariate(10.0),
}
DRAWS = 1000
shapes = pytest.mark.parametrize("shape", ONE_GROUP.values(), ids=list(ONE_GROUP))


def covered(found: list[Speedup]) -> float:
    """Return in which part of the draws the interval holds the truth, which is 1."""
    assert all((one.says == "same") == (one.ci95[0] <= 1.0 <= one.ci95[1]) for one in found)
    return sum(one.says == "same" for one in found) / len(found)


@pytest.mark.parametrize("count", [6, 8, 10, 20, 50])
def test_a_subject_against_itself_is_the_same_in_95_of_100(count: int) -> None:
    draw = random.Random(count)
    assert covered([speedup(*drifting(draw, count)) for _ in range(1500)]) >= 0.95


@pytest.mark.parametrize("count", [10, 20, 50])
def test_the_interval_is_no_wider_than_it_takes(count: int) -> None:
    draw = random.Random(count)
    assert covered([speedup(*drifting(draw, count)) for _ in range(1500)]) <= 0.99


@shapes
@pytest.mark.parametrize("count", [6, 10, 20])
def test_the_interval_holds_whatever_the_distribution(shape: Shape, count: int) -> None:
    draw = random.Random(count)
    pairs = [[[shape(draw) for _ in range(count)] for _ in range(2)] for _ in range(DRAWS)]
    assert covered([speedup(*pair) for pair in pairs]) >= 0.95
    assert covered([unpaired_speedup(*pair) for pair in pairs]) >= 0.95


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_samples_get_an_interval_that_is_wide_enough(count: int) -> None:
    draw = random.Random(count)
    found = [speedup(*drifting(draw, count)) for _ in range(2000)]
    assert 0.94 <= covered(found) <= 0.98
    draw = random.Random(count)
    wide = [speedup(*drifting(draw, count)).ci95 for _ in range(10)]
    assert all(math.log(high / low) > 0.001 for low, high in wide)


@pytest.mark.parametrize("noise", [0.0003, 0.01, 0.3])
@pytest.mark.parametrize(
    ("before", "after"), [(3, 5), (6, 6), (6, 50), (10, 10), (10, 50), (20, 20), (50, 50)]
)
def test_two_runs_of_the_same_are_the_same_in_95_of_100(
    before: int, after: int, noise: float
) -> None:
    draw = random.Random(before)

    def run(count: int, deviation: float) -> list[float]:
        return [5.0 * draw.lognormvariate(0.0, deviation) for _ in range(count)]

    found = [unpaired_speedup(run(before, noise), run(after, 0.01)) for _ in range(DRAWS)]
    assert covered(found) >= 0.95


@pytest.mark.parametrize(
    ("count", "first", "last"), [(6, 0, 5), (10, 1, 8), (20, 5, 14), (100, 39, 60)]
)
def test_the_median_s_interval_leaves_out_what_a_binomial_table_says(
    count: int, first: int, last: int
) -> None:
    assert median_interval([float(i) for i in range(count)]) == (first, last)
    inside = sum(math.comb(count, k) for k in range(first + 1, last + 1)) / 2**count
    assert inside >= 0.95


def test_the_median_s_interval_of_few_and_of_many() -> None:
    assert median_interval([1.0] * 5) is None
    low, high = median_interval([float(i) for i in range(10_001)]) or (0.0, 0.0)
    assert low + high == 10_000
    assert high - low == pytest.approx(1.96 * 100, abs=4)


def test_a_true_difference_is_seen() -> None:
    draw = random.Random(1)
    base, mine = drifting(draw, 20)
    assert speedup(base, [1.1 * time for time in mine]).says == "slower"
    assert speedup(base, [0.9 * time for time in mine]).says == "faster"
    before, after = ([draw.gauss(mean, 0.1) for _ in range(20)] for mean in (5.0, 5.5))
    found = unpaired_speedup(before, after)
    assert found.says == "slower"
    assert found.median == median(before) / median(after)


def test_two_runs_cannot_be_told_apart_below_a_step_of_the_clock() -> None:
    steady = unpaired_speedup([2.0] * 20, [2.001] * 20)
    assert steady.says == "slower"
    assert steady.ci95 == pytest.approx((2 / 2.001,) * 2)
    assert unpaired_speedup([2.0] * 20, [2.001] * 20, step=0.002).says == "same"


@pytest.mark.parametrize(
    ("ci95", "says"),
    [((1.01, 1.2), "faster"), ((0.8, 0.99), "slower"), ((0.99, 1.2), "same"), ((1.0, 1.2), "same")],
)
def test_only_a_whole_interval_says_more_than_the_same(
    ci95: tuple[float, float], says: str
) -> None:
    assert Speedup(median=sum(ci95) / 2, ci95=ci95).says == says
