"""Medians and the interval of a ratio."""

import random

import pytest

from kernelgen.grading.statistics import median, speedup


@pytest.mark.parametrize(
    ("values", "expected"), [([3.0], 3.0), ([1.0, 9.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5)]
)
def test_the_median_is_the_middle(values: list[float], expected: float) -> None:
    assert median(values) == expected


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_a_constant_ratio_has_no_width() -> None:
    found = speedup([2.0] * 20, [1.0] * 20)
    assert (found.median, found.ci95) == (2.0, (2.0, 2.0))


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="not paired"):
        speedup([1.0, 2.0], [1.0])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(7)
    covered = 0
    for _ in range(100):
        base = [draw.gauss(2.0, 0.1) for _ in range(25)]
        mine = [draw.gauss(1.0, 0.05) for _ in range(25)]
        low, high = speedup(base, mine).ci95
        covered += low <= 2.0 <= high
    assert covered >= 88


def test_the_same_samples_give_the_same_interval() -> None:
    base, mine = [2.0, 2.1, 1.9, 2.2, 2.05], [1.0, 1.1, 0.9, 1.05, 1.0]
    assert speedup(base, mine) == speedup(base, mine)
