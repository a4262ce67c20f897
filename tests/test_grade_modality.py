"""Two groups of times are told from one, by simulation with fixed seeds."""

import random
from collections.abc import Callable

import pytest

from kernelgen.grading.timing.modality import groups, is_bimodal

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


def two_groups(draw: random.Random, count: int, apart: float, share: float) -> list[float]:
    """Return times around 5 ms and so many standard deviations, of 0.02 ms each, above."""
    upper = round(share * count)
    times = [draw.gauss(5.0 + 0.02 * apart * (n < upper), 0.02) for n in range(count)]
    draw.shuffle(times)
    return times


@pytest.mark.parametrize("count", [10, 20, 50])
@pytest.mark.parametrize("shape", ONE_GROUP.values(), ids=list(ONE_GROUP))
def test_one_group_is_called_two_in_less_than_2_of_100(shape: Shape, count: int) -> None:
    draw = random.Random(count)
    called = sum(is_bimodal([shape(draw) for _ in range(count)]) for _ in range(DRAWS))
    assert called < 0.02 * DRAWS


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize(
    ("count", "apart", "least"),
    [(30, 6, 0.95), (50, 6, 0.95), (20, 8, 0.95), (10, 15, 0.95), (20, 6, 0.78)],
)
def test_two_groups_are_found(count: int, apart: float, least: float, share: float) -> None:
    draw = random.Random(count)
    found = sum(is_bimodal(two_groups(draw, count, apart, share)) for _ in range(DRAWS))
    assert found > least * DRAWS


def test_the_groups_are_the_samples_themselves() -> None:
    low, high = [5.0, 5.01, 5.02, 5.01, 4.99, 5.0], [5.5, 5.51, 5.49, 5.5]
    assert groups([*high, *low]) == (tuple(sorted(low)), tuple(sorted(high)))


def test_an_outlier_or_two_are_no_group() -> None:
    draw = random.Random(5)
    body = [draw.gauss(5.0, 0.01) for _ in range(18)]
    assert groups([*body, 6.0]) is None
    assert groups([*body, 6.0, 6.01]) is None


@pytest.mark.parametrize("step", [0.000032, 0.001024])
def test_the_steps_of_the_clock_are_no_groups(step: float) -> None:
    draw = random.Random(9)
    for width in (0.3, 0.6, 1.0):
        counted = [round(20.5 + draw.gauss(0.0, width)) for _ in range(20)]
        assert not is_bimodal([step * ticks for ticks in counted])


def test_too_few_and_equal_samples_are_one_group() -> None:
    assert not is_bimodal([1.0] * 4 + [2.0] * 5)
    assert is_bimodal([1.0] * 5 + [2.0] * 5)
    assert not is_bimodal([1.0] * 30)
    assert not is_bimodal([])
