"""Medians, quartiles and outliers, and the intervals of ratios."""

import math
import random

import pytest

from kernelgen.grading.timing.resampling import expanded_tail, resampled_median, student
from kernelgen.grading.timing.statistics import (
    median,
    outliers,
    quartiles,
    resolution_ms,
    speedup,
    unpaired_speedup,
)
from kernelgen.grading.timing.times import Speedup


@pytest.mark.parametrize(
    ("values", "expected"), [([3.0], 3.0), ([1.0, 9.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5)]
)
def test_the_median_is_the_middle(values: list[float], expected: float) -> None:
    assert median(values) == expected


def test_no_values_have_no_median_and_no_quartiles() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="no values"):
        quartiles([])


def test_quartiles_are_interpolated_between_samples() -> None:
    assert quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (2.0, 4.0)
    assert quartiles([4.0, 1.0, 2.0, 3.0]) == (1.75, 3.25)


def test_outliers_lie_beyond_tukey_s_fences() -> None:
    body = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert outliers(body) == 0
    assert outliers([*body, 100.0]) == 1
    assert outliers([-100.0, *body, 100.0, 101.0]) == 3


def test_a_step_of_the_clock_beside_equal_samples_is_no_outlier() -> None:
    step = 0.001024
    assert outliers([2 * step] * 18 + [3 * step] * 2) == 0
    assert outliers([2 * step] * 18 + [9 * step] * 2) == 2


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
    with pytest.raises(ValueError, match="not paired"):
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


@pytest.mark.parametrize("count", [10, 20, 50])
def test_a_subject_against_itself_is_the_same_in_95_of_100(count: int) -> None:
    draw = random.Random(count)
    found = [speedup(*drifting(draw, count)) for _ in range(1500)]
    covered = sum(one.ci95[0] <= 1.0 <= one.ci95[1] for one in found)
    assert 0.93 <= covered / len(found) <= 0.98
    assert sum(one.says == "same" for one in found) == covered


@pytest.mark.parametrize("count", [3, 4, 5, 6, 8])
def test_few_samples_get_an_interval_that_is_wide_enough(count: int) -> None:
    draw = random.Random(count)
    found = [speedup(*drifting(draw, count)) for _ in range(1000)]
    assert sum(one.ci95[0] <= 1.0 <= one.ci95[1] for one in found) >= 930


@pytest.mark.parametrize(("before", "after"), [(3, 5), (10, 10), (10, 50), (20, 20), (50, 50)])
def test_two_runs_of_the_same_are_the_same_in_95_of_100(before: int, after: int) -> None:
    draw = random.Random(before)
    found = [
        unpaired_speedup(*([draw.gauss(5.0, 0.1) for _ in range(count)] for count in sizes))
        for sizes in [(before, after)] * 400
    ]
    assert sum(one.ci95[0] <= 1.0 <= one.ci95[1] for one in found) >= 372


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


@pytest.mark.parametrize("count", [2, 3, 9, 10, 20, 51, 400])
def test_the_resampled_median_s_probabilities_add_up(count: int) -> None:
    found = resampled_median([float(n * n) for n in range(count)])
    assert math.fsum(chance for _, chance in found) == pytest.approx(1.0, abs=1e-5)
    assert [value for value, _ in found] == sorted(value for value, _ in found)


@pytest.mark.parametrize("count", [7, 10])
def test_the_resampled_median_is_what_resampling_finds(count: int) -> None:
    draw = random.Random(count)
    values = [draw.gauss(0, 1) for _ in range(count)]
    drawn = sorted(median(draw.choices(values, k=count)) for _ in range(20_000))
    found = resampled_median(values)
    for limit in (-0.5, 0.0, 0.5):
        exact = math.fsum(chance for value, chance in found if value <= limit)
        assert sum(value <= limit for value in drawn) / len(drawn) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (9, 2.2622), (19, 2.0930), (49, 2.0096)]
)
def test_student_s_t_is_the_tables(freedom: int, t: float) -> None:
    assert student(freedom) == pytest.approx(t, abs=1e-4)


def test_few_samples_are_cut_further_out() -> None:
    tails = [expanded_tail(count) for count in (6, 10, 20, 50, 1000)]
    assert tails == sorted(tails)
    assert tails[1] == pytest.approx(0.0086, abs=1e-4)
    assert tails[-1] == pytest.approx(0.025, abs=2e-4)


@pytest.mark.parametrize(
    ("ci95", "says"),
    [((1.01, 1.2), "faster"), ((0.8, 0.99), "slower"), ((0.99, 1.2), "same"), ((1.0, 1.2), "same")],
)
def test_only_a_whole_interval_says_more_than_the_same(
    ci95: tuple[float, float], says: str
) -> None:
    assert Speedup(median=sum(ci95) / 2, ci95=ci95).says == says
