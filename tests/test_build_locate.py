"""A generated line and the row of the solution that holds it."""

from hypothesis import given
from hypothesis import strategies as st

from kernelgen.build.locate import find_declaration, find_literal, find_row

CUDA = "int a;\n__global__ void k() {\n  int b;\n}\n__global__ void q() {\n  int c;\n}\n"


def _row(solution: str, needle: str) -> int:
    (row,) = [i for i, line in enumerate(solution.splitlines(), 1) if needle in line]
    return row


def test_a_line_of_a_triple_quoted_string_is_found_at_its_row() -> None:
    solution = f'import torch\n\nCUDA = r"""\n{CUDA}"""\n'
    generated = f"#include <torch/types.h>\n\n{CUDA}"
    line = generated.split("\n").index("  int c;") + 1
    assert find_row(generated, line, solution) == _row(solution, "int c;")


def test_a_brace_is_told_from_its_equals_by_the_lines_around_it() -> None:
    solution = f'CUDA = """{CUDA}"""\n'
    lines = CUDA.split("\n")
    first, second = [i + 1 for i, text in enumerate(lines) if text == "}"]
    assert find_row(CUDA, first, solution) == _row(solution, "int b;") + 1
    assert find_row(CUDA, second, solution) == _row(solution, "int c;") + 1


def test_lines_written_with_escapes_are_found() -> None:
    solution = 'SRC = (\n    "int a;\\n"\n    "int wrong\\tb;\\n"\n    "int c;\\n"\n)\n'
    assert find_row("int a;\nint wrong\tb;\nint c;\n", 2, solution) == 3


def test_an_ambiguous_line_has_no_row() -> None:
    solution = 'A = """\nint x;\n"""\nB = """\nint x;\n"""\n'
    assert find_row("int x;", 1, solution) is None


def test_a_line_that_an_f_string_filled_in_is_found_between_its_neighbours() -> None:
    solution = 'n = 4\nSRC = f"""\nint before;\nfloat a[{n}];\nint after;\n"""\n'
    assert find_row("\nint before;\nfloat a[4];\nint after;\n", 3, solution) == 4


def test_doubled_braces_of_an_f_string_count_as_one() -> None:
    solution = 'n = 4\nSRC = f"""\nvoid f() {{ int a; }}\n"""\n'
    assert find_row("\nvoid f() { int a; }\n", 2, solution) == 3


def test_a_line_outside_the_file_has_no_row() -> None:
    assert find_row("int x;", 9, 'A = "int x;"\n') is None


def test_text_that_is_no_python_is_searched_line_by_line() -> None:
    assert find_row("int x;\n", 1, '"""\nint x;\n') == 2


def test_literals_and_declarations_are_found() -> None:
    solution = 'CPP = """\nint f (int a);\n"""\nload(functions=["f"])\n'
    assert find_literal("f", solution) == 4
    assert find_declaration("f", solution) == 2
    assert find_literal("g", solution) is None


@given(st.lists(st.sampled_from(["int a;", "}", "", "x += 1;", "{"]), min_size=1, max_size=8))
def test_every_row_that_is_told_holds_the_line(lines: list[str]) -> None:
    text = "\n".join(lines)
    for row, line in enumerate(lines, 1):
        assert find_row(text, row, f'A = """{text}"""\n') in ({row} if line else {row, None})
