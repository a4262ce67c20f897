"""Lines of code, which scripts/size.py counts."""

import pytest
from size import code_lines, sizes


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("x = 1\n\n# a comment\ny = 2  # another\n", 2),
        ('"""A module.\n\nIts docstring.\n"""\nx = 1\n"""Of an attribute."""\n', 1),
        ('class A:\n    """A class."""\n\n    def f(self):\n        """A function."""\n', 2),
        ('text = """one\n\ntwo\n"""\n', 4),
        ("def f(\n    x,\n): ...\n", 3),
        ("def f():\n    x.value\n", 2),
        ("if x:\n    ...\n", 2),
    ],
)
def test_blank_lines_comments_and_docstrings_are_no_code(source: str, lines: int) -> None:
    assert code_lines(source.encode()) == lines


def test_the_whole_package_is_the_sum_of_its_folders() -> None:
    found = sizes("HEAD")
    rooms = sum(lines for name, lines in found.items() if name.startswith("kernelgen/"))
    assert 0 < rooms < found["kernelgen"], "the package has modules of its own"
    assert found["tests"] > found["docs"] > 0
