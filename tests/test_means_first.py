"""Means of what norms make, taken of what the norms gather."""

from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.engines.stage import Kernel
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.planning.planner import choices_of
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case
from kernelgen.rendering.solution import render
from kernelgen.tracing.trace import trace

X = "torch.randn(6, 8, 5, 4)"
GROUPS = "self.n = nn.GroupNorm(2, 8)"
BATCH = "self.n = nn.BatchNorm2d(8)"
# An expression, the layers, and the operators that come after the mean.
EARLY = {
    "all pixels": ("self.n(x).mean((2, 3))", GROUPS, "sub, mul, add"),
    "all but images": ("self.n(x).mean((1, 2, 3)) * 2", GROUPS, "sub, mul, add"),
    "some dimensions": ("self.n(x).mean(3)", BATCH, "sub, mul, add"),
    "kept dimensions": ("self.n(x) - self.n(x).mean((2, 3), keepdim=True)", BATCH, "sub, mul, add"),
    "windows": ("F.avg_pool2d(F.avg_pool2d(self.n(x), 2), (2, 1))", BATCH, "sub, mul, add"),
    "to one element": ("F.adaptive_avg_pool2d(self.n(x.tanh()), 1)", BATCH, "sub, mul, add"),
    "from a number": ("(self.n(x) / 4 - 3).mean((2, 3))", BATCH, "sub, mul, add, div"),
    "only some links": ("self.n(x).relu().mul(2).mean((2, 3)) + x.amax((2, 3))", BATCH, ""),
    "another's factors": ("(self.n(x) * x.tanh()).mean((2, 3))", BATCH, ""),
    "nothing to share": ("(x * self.n.weight.view(-1, 1, 1)).mean((2, 3))", BATCH, ""),
    "overlapping windows": ("F.avg_pool2d(self.n(x), 3, 2)", BATCH, "sub, mul, add"),
    "padded windows": ("F.avg_pool2d(self.n(x), 2, padding=1)", BATCH, ""),
    "the largest": ("F.max_pool2d(self.n(x), 2)", BATCH, ""),
    "whole numbers": (
        "(torch.arange(8).view(-1, 1, 1) * self.n(x)).mean((2, 3))",
        BATCH,
        "",
    ),
    "of what is compared": ("torch.where(x > 0, self.n(x), x).mean((2, 3))", BATCH, ""),
}


@pytest.mark.parametrize("name", EARLY)
def test_means_come_before_what_is_linear(name: str, tmp_path: Path, compiled_folder: Path) -> None:
    forward, layers, operators = EARLY[name]
    layers += "\nself.n.weight.data.uniform_(-1, 1)\nself.n.bias.data.uniform_()"
    problem = problem_of(tmp_path, forward, layers=layers, x=X)
    assert problem.module_source is not None
    graph = trace(problem.module_source)
    found = choices_of(graph).identities
    assert found == ((f"the mean before {operators}",) if operators else ())
    Planned(problem, "cpp", compiled_folder).check()


PROBLEM = """
summary: a norm and its mean
model: |
  class Model(nn.Module):
      def __init__(self, channels: int) -> None:
          super().__init__()
          self.n = nn.BatchNorm2d(channels)

      def forward(self, x: torch.Tensor) -> torch.Tensor:
          return self.n(x).mean((0, 2, 3)) + 1
get_inputs: |
  def get_inputs():
      return [torch.rand(4, 8, 6, 5)]
get_init_inputs: |
  def get_init_inputs():
      return [8]
cases:
  - name: one_image_of_one_column
    get_inputs: |
      def get_inputs():
          return [torch.rand(1, 8, 6, 1)]
"""


def test_cases_of_one_element_have_the_main_case_s_plan(tmp_path: Path) -> None:
    file = tmp_path / "mean_of_a_norm.yaml"
    file.write_text(PROBLEM)
    problem = load_problem(file)
    plan = plan_of_problem(problem, Case(name="main"), "cpu").plan
    assert plan.identities == ("the mean before sub, mul, add",)
    assert "# identities: the mean before sub, mul, add\n" in render(problem, "cpp", {})


def test_a_problem_can_forbid_algebra(tmp_path: Path) -> None:
    file = tmp_path / "mean_of_a_norm.yaml"
    file.write_text(PROBLEM + "algebra: forbidden\n")
    problem = load_problem(file)
    plan = plan_of_problem(problem, Case(name="main"), "cpu").plan
    assert plan.identities == ()
    assert "identities" not in render(problem, "cpp", {})
    gathered = [s.shape for s in plan.stages if isinstance(s, Kernel) and s.accumulators]
    assert gathered == [(4, 8, 6, 5)] * 2
