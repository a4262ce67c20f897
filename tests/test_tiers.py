"""Which combinations of parameters the quick tier keeps."""

import itertools

from tiers import sample


def test_every_pair_of_values_stays() -> None:
    sizes = {"a": 4, "b": 5, "c": 6}
    rows = [
        tuple(zip(sizes, map(str, values), strict=True))
        for values in itertools.product(*map(range, sizes.values()))
    ]
    kept = [set(rows[position]) for position in sample(rows)]
    for one, other in itertools.combinations(sizes, 2):
        for pair in itertools.product(range(sizes[one]), range(sizes[other])):
            named = set(zip((one, other), map(str, pair), strict=True))
            assert any(named <= row for row in kept)
    assert len(kept) < 40


def test_of_two_parameters_every_value_stays_and_of_one_every_test() -> None:
    two = [(("a", x), ("b", y)) for x in "123" for y in "45"]
    assert {value for position in sample(two) for value in two[position]} == {
        *two[0],
        *two[3],
        *two[4],
    }
    assert sample([(("a", x),) for x in "123"]) == {0, 1, 2}
    assert sample([()]) == {0}
