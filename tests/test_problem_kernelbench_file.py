"""Reading a KernelBench file."""

from pathlib import Path

import pytest

from kernelgen.errors import ProblemError
from kernelgen.problem.kernelbench_file import read_kernelbench_problem

GOOD = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Doubles its input.

    More words.
    """

    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x):
        return 2 * x


batch_size = 16


def get_inputs():
    return [torch.rand(batch_size, 3)]


def get_init_inputs():
    return []  # nothing
'''


def refusal(path: Path, text: str) -> ProblemError:
    path.write_text(text)
    with pytest.raises(ProblemError) as caught:
        read_kernelbench_problem(path)
    return caught.value


def test_the_whole_text_is_the_module(tmp_path: Path) -> None:
    path = tmp_path / "12_Doubles its-input_.py"
    path.write_text(GOOD)
    problem = read_kernelbench_problem(path)

    assert problem.name == "12_Doubles_its-input"
    assert problem.summary == "Doubles its input."
    assert problem.module_source == GOOD
    assert problem.cases == ()
    assert problem.reference_source(problem.all_cases()[0], "cpu") == GOOD


def test_the_summary_is_the_modules_docstring_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('"""Of the module."""\n' + GOOD)

    assert read_kernelbench_problem(path).summary == "Of the module."


def test_the_summary_is_the_name_if_there_is_no_docstring(tmp_path: Path) -> None:
    path = tmp_path / "7_two_times.py"
    path.write_text(GOOD.replace('"""', "#", 1).replace('"""', "").replace("Doubles", "#")
                    .replace("More", "#"))  # fmt: skip

    assert read_kernelbench_problem(path).summary == "7 two times"


@pytest.mark.parametrize("name", ["Model", "get_inputs", "get_init_inputs"])
def test_each_part_of_the_interface_is_required(name: str, tmp_path: Path) -> None:
    text = GOOD.replace(f"class {name}(", "class Other(").replace(f"def {name}(", "def other(")
    error = refusal(tmp_path / "x.py", text)

    assert error.key == name
    assert "found none" in error.message


def test_get_inputs_with_parameters_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path / "x.py", GOOD.replace("def get_inputs()", "def get_inputs(n)"))

    assert error.line == GOOD[: GOOD.index("def get_inputs")].count("\n") + 1
    assert "(n)" in error.message


def test_a_model_without_forward_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "x.py", GOOD.replace("def forward", "def other")).key == "Model"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return [torch.rand(batch_size, 3)]", "return [1, 2]", "2 arguments, but Model.forward"),
        (
            "return [torch.rand(batch_size, 3)]",
            "return []",
            "0 arguments, but Model.forward takes (x)",
        ),
        ("return []", "return [1, 2]", "2 arguments, but Model.__init__ takes ()"),
    ],
)
def test_arguments_that_model_does_not_take_are_the_problems_fault(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    error = refusal(tmp_path / "x.py", text)
    assert words in error.message
    assert error.line is not None
    # Where other code may take them, nothing is said.
    for free in ("def forward(self, *x)", "@torch.no_grad()\n    def forward(self, x)"):
        loose = text.replace("def forward(self, x)", free).replace("(self):", "(self, *a):")
        (tmp_path / "y.py").write_text(loose)
        read_kernelbench_problem(tmp_path / "y.py")


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    error = refusal(tmp_path / "x.py", GOOD.replace("return 2 * x", "return 2 *"))

    assert error.line == 16
    assert "return 2 *" in error.message


def test_other_encodings_and_absent_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(GOOD.encode() + b"# \xff\n")
    with pytest.raises(ProblemError, match="UTF-8"):
        read_kernelbench_problem(path)
    with pytest.raises(ProblemError, match="cannot be read"):
        read_kernelbench_problem(tmp_path / "absent.py")
