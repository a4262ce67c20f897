"""Which combinations of parameters the quick tier keeps."""

import itertools

from tiers import sample


def test_every_value_stays_and_few_tests() -> None:
    sizes = {"a": 4, "b": 5, "c": 6}
    rows = [
        tuple(zip(sizes, map(str, values), strict=True))
        for values in itertools.product(*map(range, sizes.values()))
    ]
    kept = [value for position in sample(rows) for value in rows[position]]
    assert set(kept) == {value for row in rows for value in row}
    assert len(kept) == 3 * 6


def test_of_one_parameter_or_none_every_test_stays() -> None:
    assert sample([(("a", x),) for x in "123"]) == {0, 1, 2}
    assert sample([()]) == {0}
