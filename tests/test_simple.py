"""Files with the general kernels alone, `kernelgen render --simple`."""

import re
from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.engines.architectures import SIMPLE
from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render

MODELS = {
    "softmax": {"forward": "x.softmax(-1)", "x": "torch.randn(3, 4096)"},
    "norm": {
        "forward": "self.n(x)",
        "layers": "self.n = nn.GroupNorm(2, 4)",
        "x": "torch.randn(2, 4, 33, 65)",
    },
    "product": {"forward": "x @ y", "x": "torch.randn(70, 33)", "y": "torch.randn(33, 45)"},
    "transposed": {
        "forward": "x.mT @ y",
        "x": "torch.randn(2, 33, 7)",
        "y": "torch.randn(2, 33, 5)",
    },
    "linear": {
        "forward": "F.gelu(self.a(x)).sum(-1)",
        "layers": "self.a = nn.Linear(33, 20)",
        "x": "torch.randn(130, 33)",
    },
    "column": {"forward": "x @ y", "x": "torch.randn(9, 64)", "y": "torch.randn(64, 1)"},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_simple_file_computes_with_kernels_of_its_own(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, **MODELS[name]), "cuda", compiled_folder, arch=SIMPLE)
    planned.check()
    assert planned.launched
    assert not re.search(r"wgmma|mma\.sync|cp\.async|mbarrier|cluster", planned.text)


@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "softmax", "linear_instancenorm_add_mul"])
def test_a_simple_file_is_shorter_and_says_how_it_is_rendered(name: str) -> None:
    problem = load_problem(name)
    simple, fast = render(problem, arch=SIMPLE), render(problem)
    assert len(simple.splitlines()) < 0.8 * len(fast.splitlines())
    assert f"# render again: kernelgen render {name} --simple\n" in simple
