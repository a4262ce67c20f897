"""Which tests `make test` leaves to `.ci/run` and to `make test-all`.

Markers say why: `ci` for the former, `mutants`, `corpus` and `long` for the latter. Where a module
is marked `sampled`, the tests of a function with several parameters are thinned out: those stay
that together have each value of each parameter, and the others become `long`, or `rest=`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

Values = tuple[tuple[str, str], ...]  # (parameter, its value as text)


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Mark what is left out of the samples as `long`, or as what their module's mark says."""
    functions: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        is_long = item.get_closest_marker("long") is not None
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled") and not is_long:
            functions[item.nodeid.partition("[")[0]].append(item)
    for tests in functions.values():
        rows = [_values_of(test) for test in tests]
        marker = tests[0].get_closest_marker("sampled")
        assert marker is not None, "only such tests are here"
        kept = sample(rows)
        for position, test in enumerate(tests):
            if position not in kept:
                test.add_marker(marker.kwargs.get("rest", "long"))


def sample(rows: Sequence[Values]) -> set[int]:
    """Return the positions of rows that together have each value of each parameter.

    Greedy: at each step the row with the most values that are still missing, the first of equals.
    """
    missing = {value for row in rows for value in row}
    kept = {n for n, row in enumerate(rows) if not row}
    while missing:
        best = max(range(len(rows)), key=lambda n: (len(missing.intersection(rows[n])), -n))
        missing.difference_update(rows[best])
        kept.add(best)
    return kept


def _values_of(test: pytest.Function) -> Values:
    spec = getattr(test, "callspec", None)
    return () if spec is None else tuple((name, repr(x)) for name, x in spec.params.items())
