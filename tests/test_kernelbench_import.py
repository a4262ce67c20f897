"""`kernelgen import`: nothing of a KernelBench file is lost in its YAML."""

import ast
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from kernelbench_trees import PROBLEM

from kernelgen.cli import program
from kernelgen.errors import UserError
from kernelgen.kernelbench import yaml_form as yaml_forms
from kernelgen.kernelbench.yaml_form import yaml_form
from kernelgen.problem.record import Problem
from kernelgen.problem.yaml_file import read_yaml_problem
from kernelgen.rendering.solution import render_reference

HEAD = "import torch\nimport torch.nn as nn\n"
MODEL = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x)
"""
INPUTS = """
def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
"""
FORMS = {
    "as most are": HEAD + MODEL + "rows = 3\nwidth = 4\n" + INPUTS,
    "tuples and arithmetic": HEAD
    + MODEL
    + "rows, width = 3, 2 * 2  # small\nscale = 1e-5\nshape = (rows, width)\n"
    + INPUTS.replace("rows, width", "*shape").replace("rand(*shape)", "rand(*shape) * scale"),
    "a helper class and function before Model": HEAD
    + "import math\n\n\nclass Norm(nn.Module):\n    def forward(self, x):\n"
    "        return x / math.sqrt(count(x))\n\n\ndef count(x):\n    return x.numel()\n"
    + MODEL.replace("return self.linear(x)", "return Norm()(self.linear(x))")
    + "rows = 3\nwidth = 4\n"
    + INPUTS,
    "a helper after get_inputs": HEAD
    + MODEL.replace("return self.linear(x)", "return shifted(self.linear(x))")
    + "rows = 3\nwidth = 4\n"
    + INPUTS
    + "\n\ndef shifted(x):\n    return x + offset\n\n\noffset = 0.25\n",
    "functions before Model": HEAD + "rows = 3\nwidth = 4\n" + INPUTS + MODEL,
    "F and other names of torch": HEAD
    + "import torch.nn.functional as F\nimport torch as th\nfrom torch import nn\n"
    + MODEL.replace("return self.linear(x)", "return F.relu(th.tanh(self.linear(x)))")
    + "rows = 3\nwidth = 4\n"
    + INPUTS,
    "a list, None, a name of Python, bound twice": HEAD
    + "sizes = [3, 4]\nnothing = None\nmax = 7\nrows = 1\nrows += 2\nwidth = 3\nwidth = 4\n"
    + MODEL.replace("nn.Linear(width", "nn.Linear(width if nothing is None else max")
    + "sizes.append(max)\n"
    + INPUTS.replace("rows, width", "sizes[0], sizes[1] + rows - sizes[0]"),
    "drawn at import": HEAD
    + "torch.manual_seed(3)\nfactors = torch.rand(4)\n"
    + MODEL.replace("self.linear(x)", "self.linear(x) * factors")
    + "table = torch.rand(3, 4)\nrows = 3\nwidth = 4\n"
    + INPUTS.replace("rows, width)", "rows, width) + table"),
    "text with what YAML may mistake": HEAD
    + "mode = 'on'\nname = 'a: b # c'\nempty = ''\nplain = 'mean'\nrows = 3\nwidth = 4\n"
    + MODEL.replace(
        "return self.linear(x)",
        "assert (mode, name, empty, plain) == ('on', 'a: b # c', '', 'mean')\n"
        "        return self.linear(x)",
    )
    + INPUTS,
    "statements that share a line": HEAD
    + MODEL
    + "rows = 3; width = 4; half = rows / 2\n"
    + INPUTS,
    "a main block and carriage returns": (
        HEAD
        + MODEL
        + "rows = 3\nwidth = 4\n"
        + INPUTS
        + '\n\nif __name__ == "__main__":\n    print(get_inputs())\n'
    ).replace("\n", "\r\n"),
    "defaults, a decorator, True and negative": HEAD
    + "width = 4\nrows = 3\nbias = True\noffset = -1.5\n\n\n@torch.no_grad()\n"
    "def doubled(x, by=rows):\n    return x * by\n"
    + MODEL.replace("width, width)", "width, width, bias=bias)").replace(
        "return self.linear(x)", "return doubled(self.linear(x)) + offset"
    )
    + INPUTS,
    "a branch that never runs": HEAD
    + MODEL.replace("return self.linear(x)", "return checkpoint(x) if False else self.linear(x)")
    + "rows = 3\nwidth = 4\n"
    + INPUTS,
    "text over several lines": HEAD
    + 'NOTE = """\n  of two lines,  \n\n\tand a tab: {}\n"""\n'
    + MODEL.replace("return self.linear(x)", "return self.linear(x) + len(NOTE)")
    + "rows = 3\nwidth = 4\n"
    + INPUTS,
}


def imported(folder: Path, text: str) -> tuple[Problem, str]:
    """Return the problem that a file becomes, and its YAML."""
    source, destination = folder / "7_Form.py", folder / "7_Form.yaml"
    source.write_bytes(text.encode())
    yaml = yaml_form(source, destination)
    destination.write_text(yaml)
    return read_yaml_problem(destination), yaml


def behaviour(text: str) -> tuple[dict[str, Any], list[Any], Any]:
    """Return a module's parameters, inputs and outputs under one seed."""
    module = types.ModuleType("reference")
    torch.manual_seed(1)
    exec(compile(text, "reference", "exec"), module.__dict__)
    torch.manual_seed(2)
    model = module.Model(*module.get_init_inputs())
    torch.manual_seed(3)
    inputs = module.get_inputs()
    return dict(model.state_dict()), inputs, model(*inputs)


@pytest.mark.parametrize("form", FORMS)
def test_the_rendered_reference_behaves_as_the_file(tmp_path: Path, form: str) -> None:
    problem, _ = imported(tmp_path, FORMS[form])
    (state, inputs, output), (other_state, other_inputs, other_output) = (
        behaviour(text) for text in (FORMS[form], render_reference(problem, "cuda"))
    )
    assert list(state) == list(other_state) != []
    assert all(torch.equal(state[name], other_state[name]) for name in state)
    assert torch.equal(inputs[0], other_inputs[0])
    assert torch.equal(output, other_output)


def test_the_text_reads_as_a_person_writes_it(tmp_path: Path) -> None:
    text = (
        f'"""Rows through a layer."""\n\n{HEAD}\n# Far from 1.\nscale = 2e-5\n{MODEL}\n'
        "rows, width = 3, 4 * 1024  # a few\npadding = (1, (2, 3))\n"
        "shape = (rows, width)\n"
        f"{INPUTS.replace('rows, width', '*shape')}"
    )
    _, yaml = imported(tmp_path, text)
    assert (
        yaml
        == f"""\
# From {tmp_path.name}/7_Form.py.
summary: Rows through a layer.

constants:
  # Far from 1.
  # scale = 2e-5
  scale: 2.0e-05
  # rows, width = 3, 4 * 1024  # a few
  rows: 3
  width: 4096
  # padding = (1, (2, 3))
  padding: [1, [2, 3]]

model: |
  class Model(nn.Module):
      def __init__(self, width):
          super().__init__()
          self.linear = nn.Linear(width, width)

      def forward(self, x):
          return self.linear(x)

get_inputs: |
  shape = (rows, width)

  def get_inputs():
      return [torch.rand(*shape)]

get_init_inputs: |
  def get_init_inputs():
      return [width]
"""
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"from __future__ import annotations\n{FORMS['as most are']}", "from __future__"),
        (FORMS["as most are"] + "x = get_inputs()\n", "`get_inputs` is used while the file"),
        (
            FORMS["as most are"] + "def get_inputs():\n    return [torch.ones(1)]\n",
            "expected one `def get_inp",
        ),
        (FORMS["as most are"] + "x = ['\u2028    ']\n", "YAML would change"),
        (FORMS["as most are"] + "x = ['\x07']\n", "U+0007"),
        ("class Model(:\n", "not Python"),
    ],
)
def test_what_yaml_cannot_hold_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        imported(tmp_path, text)
    assert words in str(caught.value)
    assert "7_Form.py" in str(caught.value)


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["import", *map(str, arguments)])


def test_the_command_writes_beside_the_other_problems_and_never_over_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "1_Twice it.py"
    source.write_text(PROBLEM.format(summary="Twice.", forward="x * 2"))
    written = tmp_path / "problems" / "1_Twice_it.yaml"
    assert invoke(source).exit_code == 0
    assert read_yaml_problem(written).constants == {"rows": 6, "columns": 40}
    assert "unchanged" in invoke(source).output
    written.write_text("mine\n")
    refused = invoke(source)
    assert (refused.exit_code, written.read_text()) == (2, "mine\n")
    assert "--force writes over it" in refused.output
    assert invoke(source, "--force").exit_code == 0
    assert read_yaml_problem(written).summary == "Twice."
    assert invoke(source, "-o", "-").stdout == written.read_text()


def test_other_files_and_places_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "1_Twice.py"
    source.write_text(PROBLEM.format(summary="Twice.", forward="x * 2"))
    for arguments in (
        [tmp_path / "a.yaml"],
        [tmp_path / "absent.py"],
        [source, "-o", tmp_path / "a.txt"],
        [source, "-o", tmp_path / "bad name.yaml"],
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, result.output
        assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "value"), [("2 * 3", 6), ("-1.5", -1.5), ("'a' * 3", None), ("(1,) * 2", None)]
)
def test_arithmetic_is_of_numbers_alone(text: str, value: float | None) -> None:
    (node,) = ast.parse(f"x = {text}").body
    wanted = None if value is None else {"x": value}
    assert yaml_forms._constants_of(node) == wanted  # noqa: SLF001
