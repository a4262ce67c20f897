"""A verbatim copy of a reference passes, whatever the reference's constructor and forward do."""

from pathlib import Path

import pytest

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.problem.library import load_problem

IMPORTS = """
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
"""
MODEL = """
class Model(nn.Module):
    def __init__(self{parameters}):
        super(Model, self).__init__()
        {constructor}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{arguments}]
"""


def reference(  # noqa: PLR0913 (the parts of a problem, each with a default)
    forward: str,
    *,
    constructor: str = "pass",
    above: str = "",
    parameters: str = "",
    arguments: str = "",
    inputs: str = "torch.randn(16, 36)",
    future: str = "",
) -> str:
    body = MODEL.format(
        parameters=parameters,
        constructor=constructor,
        forward=forward,
        inputs=inputs,
        arguments=arguments,
    )
    return f"{future}{IMPORTS}\n{above}\n{body}"


DATACLASS = """
@dataclass
class Config:
    width: int = 36
"""
SCRIPTED = """
import os

HERE = os.path.dirname(os.path.abspath(__file__))


@torch.jit.script
def swish(x):
    return x * torch.sigmoid(x)
"""
SPECIAL = "torch.randn(40, 48).index_fill(1, torch.tensor([3]), float('-inf'))"
KINDS = {
    "computed_from_initial_values": reference(
        "return x * self.w * self.largest + self.held['shift'][0] - self.pair[1].table",
        above="@dataclass\nclass Part:\n    table: torch.Tensor",
        constructor="self.w = nn.Parameter(torch.rand(36)); self.largest = float(self.w.max()); "
        "self.norm = self.w.norm(); self.held = {'shift': [torch.rand(36)]}; "
        "self.pair = (1, Part(torch.rand(36) * self.norm))",
    ),
    "default_dtype": reference(
        "return torch.relu(x * self.w).sum(1) + torch.ones(1)",
        above="torch.set_default_dtype(torch.float64)",
        constructor="self.w = nn.Parameter(torch.randn(36))",
    ),
    "storage_of_an_input": reference(
        "return torch.as_strided(x, (5, 6), (36, 2), 3) + x.storage_offset()",
        inputs="torch.randn(20, 36)[2:18]",
    ),
    "dataclass_as_argument": reference(
        "return torch.relu(x * self.w)",
        future="from __future__ import annotations\n",
        above=DATACLASS,
        parameters=", config: Config",
        constructor="self.w = nn.Parameter(torch.rand(config.width))",
        arguments="Config()",
    ),
    "arguments_of_all_kinds": reference(
        "return self.function(x.to(self.kind)) * self.factor * self.table[3] + self.start",
        parameters=", function, kind, factor, table, start",
        constructor="self.function, self.kind, self.table = function, kind, table; "
        "self.factor = float(factor); self.register_buffer('start', start)",
        arguments="F.relu, torch.float64, np.float32(2.5), {'a': [1, 2], 3: 0.5}, torch.rand(36)",
    ),
    "module_like_a_file": reference("return swish(x) + bool(HERE)", above=SCRIPTED),
    "draws_of_all_generators": reference(
        "return x * random.random() + float(np.random.rand()) + torch.rand(36)"
    ),
    "not_finite": reference("return F.gelu(x), F.silu(x), x.mul(60.0).exp()", inputs=SPECIAL),
    "one_weight_twice": reference(
        "return self.last(torch.relu(self.first(x)))",
        constructor="self.first, self.last = nn.Linear(36, 36), nn.Linear(36, 36); "
        "self.last.weight = self.first.weight",
    ),
}


def graded(folder: Path, source: str, candidate: str) -> Verdict:
    problem, file = folder / "1_Copied.py", folder / "candidate.py"
    problem.write_text(source)
    file.write_text(candidate)
    options = GradeOptions(problem=load_problem(problem), time=False, require="anything")
    return grade([file], options=options).verdicts[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_verbatim_copy_passes(kind: str, tmp_path: Path) -> None:
    copy = KINDS[kind].replace("Model(", "ModelNew(").replace("(Model,", "(ModelNew,")
    verdict = graded(tmp_path, KINDS[kind], copy)
    assert verdict.status is Status.PASSED, verdict.reason


def test_a_default_dtype_is_the_problems_not_the_candidates(tmp_path: Path) -> None:
    float64, line = KINDS["default_dtype"], "torch.set_default_dtype(torch.float64)"
    float32 = float64.replace(line, "")
    of_float32 = float32.replace("Model(", "ModelNew(").replace("(Model,", "(ModelNew,")
    # Where KernelBench runs both, the reference has set it already.
    assert graded(tmp_path, float64, of_float32).status is Status.PASSED
    assert graded(tmp_path, float32, f"import torch\n{line}\n{of_float32}").status is Status.PASSED
    inside = of_float32.replace("return", f"{line}; return")
    assert graded(tmp_path, float32, inside).status is Status.WRONG_DTYPE
