"""Which tests `make test` leaves to `make test-all`.

Markers say why: `mutants`, `corpus` and `long`. Where a module is marked `sampled`, the tests of a
function with several parameters are thinned out: those stay that together have each pair of
values (of two parameters: each value) once, and the others become `long`.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

Values = tuple[tuple[str, str], ...]  # (parameter, its value as text)


def mark_the_long_ones(items: Iterable[pytest.Item]) -> None:
    """Mark what is left out of the samples as `long`."""
    functions: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            functions[item.nodeid.partition("[")[0]].append(item)
    for tests in functions.values():
        rows = [_values_of(test) for test in tests]
        kept = sample(rows)
        for position, test in enumerate(tests):
            if position not in kept:
                test.add_marker(pytest.mark.long)


def sample(rows: Sequence[Values]) -> set[int]:
    """Return the positions of rows that together have each pair of values of all rows.

    Greedy: at each step the row with the most pairs that are still missing, the first of equals.
    """
    strength = max(1, min(2, max(map(len, rows), default=0) - 1))
    left = {
        position: set(itertools.combinations(row, strength)) for position, row in enumerate(rows)
    }
    missing = set[Values]().union(*left.values())
    kept = {n for n, pairs in left.items() if not pairs}
    while missing:
        best = max(left, key=lambda n: (len(left[n] & missing), -n))
        missing -= left.pop(best)
        kept.add(best)
    return kept


def _values_of(test: pytest.Function) -> Values:
    spec = getattr(test, "callspec", None)
    return () if spec is None else tuple((name, repr(x)) for name, x in spec.params.items())
