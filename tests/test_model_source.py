"""What a planned solution keeps of a Model's class, and where it builds its kernels."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.rendering.planned import render_planned

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    least = 0.5
{constructor}
    def forward(self, x):
        return torch.clamp(x, self.least).mul(2)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [{given}]
"""
HELPED = """
    def __init__(self, width):
        super().__init__()
        self.layer = self._layer(width)

    def _layer(self, width):
        if width == 0:
            return None
        return nn.Linear(width, 3)
"""


@pytest.mark.parametrize(
    ("constructor", "given"), [("", []), (HELPED, [5])], ids=["none", "with another method"]
)
def test_kernels_are_built_when_the_model_is_constructed(
    constructor: str, given: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(constructor=constructor, given=", ".join(map(str, given))))
    text = render_planned(read_kernelbench_problem(path), "cpp", {})
    space: dict[str, Any] = {}
    exec(compile(text, "<solution>", "exec"), space)
    built = []
    space["_library"] = lambda: built.append(SimpleNamespace())
    model = space["ModelNew"](*given)
    assert len(built) == 1
    if constructor:
        assert model.layer.in_features == 5
