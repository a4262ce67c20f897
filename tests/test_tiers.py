"""Which combinations of parameters the quick tier keeps."""

import itertools
from pathlib import Path

import pytest
from tiers import sample

pytest_plugins = "pytester"


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


@pytest.mark.parametrize(("mark", "marker"), [("sampled", "long"), ("sampled(rest='ci')", "ci")])
def test_what_a_sample_leaves_out_has_the_marker_of_its_tier(
    mark: str, marker: str, pytester: pytest.Pytester
) -> None:
    pytester.syspathinsert(Path(__file__).parent)
    pytester.makeconftest(
        "from tiers import mark_the_rest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    mark_the_rest(items)\n"
    )
    pytester.makepyfile(f"""
        import pytest
        pytestmark = pytest.mark.{mark}

        @pytest.mark.parametrize("a", [1, 2])
        @pytest.mark.parametrize("b", [1, 2])
        def test_several(a, b): pass
    """)
    items, _ = pytester.inline_genitems()
    marked = [item.name for item in items if item.get_closest_marker(marker) is not None]
    assert len(items) == 4
    assert marked == ["test_several[1-2]", "test_several[2-1]"]
