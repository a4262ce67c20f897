"""Means of what norms make, taken of what the norms gather."""

import re
from pathlib import Path

import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.engines.stage import Kernel
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case
from kernelgen.rendering.solution import render

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


def conv(kind: str, given: str, x: str = "2, 4, 12, 13") -> tuple[str, str]:
    """Return a convolution as a layer, and an input."""
    return f"self.c = nn.Conv{kind}d({given})", f"torch.randn({x})"


STRIPS = conv("Transpose2", "4, 6, 3, stride=2, padding=1, output_padding=1, groups=2")
DEEP = conv("Transpose3", "4, 6, 3, padding=1", "2, 4, 26, 5, 6")
WIDE = conv("2", "4, 6, (3, 2), padding=(2, 1), dilation=(2, 1)")
PRODUCT = ("self.c = nn.Linear(12, 9)", "torch.randn(10, 12)")
ROWS = ("self.c = nn.Linear(12, 9)", "torch.randn(2, 10, 12)")
WEIGHTS = ("self.w = nn.Parameter(torch.randn(12, 9))", "torch.randn(10, 12)")
# An expression, the layer and its input, and what the identity is.
SHRUNK = {
    "all pixels": ("self.c(x).mean((2, 3))", *WIDE, "mean before conv2d, add"),
    "strided and transposed": (
        "(self.c(x) * 2).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True)",
        *STRIPS,
        "mean before conv_transpose2d, add, mul",
    ),
    "one dimension of three": (
        "self.c(x).mean(2, keepdim=True).softmax(1)",
        *DEEP,
        "mean before conv_transpose3d, add",
    ),
    "some rows": ("self.c(x)[:, :, :9].mean((2, 3))", *WIDE, ""),
    "channels too": ("self.c(x).sum((1, 2, 3))", *WIDE, "sum before conv2d, add"),
    "same sizes": (
        "self.c(x.tanh()).mean((-1, -2))",
        *conv("2", "4, 6, 3, padding='same', bias=False"),
        "mean before conv2d",
    ),
    "of one image": (
        "self.c(x).sum(1) - 1",
        *conv("1", "4, 6, 3, padding=1", "4, 40"),
        "sum before conv1d, add",
    ),
    "other padding": (
        "self.c(x).mean(2)",
        *conv("1", "4, 6, 3, padding=1, padding_mode='reflect'", "2, 4, 40"),
        "mean before conv1d, add",
    ),
    "too many ranges": (
        "self.c(x).mean((2, 3))",
        *conv("2", "4, 6, 5, padding=2", "2, 4, 30, 30"),
        "",
    ),
    "taps of padding": (
        "self.c(x).mean(2)",
        *conv("Transpose1", "2, 3, 3, padding=65, dilation=60", "2, 2, 60"),
        "mean before conv_transpose1d, add",
    ),
    "taps far outside": (
        "self.c(x).sum(2)",
        *conv("1", "2, 3, 3, padding=22, dilation=20", "2, 2, 30"),
        "sum before conv1d, add",
    ),
    "strides": ("self.c(x).mean((2, 3))", *conv("2", "4, 6, 3, stride=2"), ""),
    "few pixels": ("self.c(x).mean((2, 3))", *conv("2", "4, 6, 5, padding=2", "2, 4, 6, 6"), ""),
    "read twice": ("(y := self.c(x)).mean((2, 3)) + y.amax((2, 3))", *WIDE, ""),
    "features": ("self.c(x).sum(1, keepdim=True) / 2", *PRODUCT, "sum before linear"),
    "features less some": (
        "(self.c(x) - self.c.bias * 3).mean(1)",
        *PRODUCT,
        "mean before linear, sub",
    ),
    "all of a product": ("(self.c(x) / 2).sum()", *PRODUCT, "sum before linear, div"),
    "rows": ("self.c(x).mean(1)", *ROWS, "mean before linear"),
    "rows and features": ("(self.c(x) - 1).sum((1, 2))", *ROWS, "sum before linear, sub"),
    "columns": ("(x @ self.w).sum(-1)", *WEIGHTS, "sum before matmul"),
    "a weight's transpose": ("(x @ self.w.t().t()).mean(0)", *WEIGHTS, "mean before matmul"),
    "means of windows": (
        "F.avg_pool2d(self.c(x), 4).sigmoid()",
        *conv("2", "4, 6, (3, 2), padding=(2, 1), groups=2"),
        "mean before conv2d, add",
    ),
    "means of windows that overlap": (
        "F.avg_pool1d(self.c(x) * 2, 9, 8)",
        *conv("1", "4, 6, 5, padding='same'", "2, 4, 40"),
        "mean before conv1d, add, mul",
    ),
    "means of deep windows": (
        "F.avg_pool3d(self.c(x), 2)",
        *conv("3", "3, 5, 3, bias=False", "2, 3, 9, 8, 7"),
        "mean before conv3d",
    ),
    "means of neighbours": (
        "F.avg_pool3d(self.c(x) * 2, 2)",
        *conv("Transpose3", "3, 4, 3, stride=2, padding=1", "2, 3, 4, 5, 6"),
        "mean before conv_transpose3d, add, mul",
    ),
    "means of neighbours up to the end": (
        "F.avg_pool3d(self.c(x), 2)",
        *conv("Transpose3", "4, 4, 3, 2, 1, output_padding=1, groups=2", "2, 4, 4, 5, 6"),
        "mean before conv_transpose3d, add",
    ),
    "means of neighbours that overlap": (
        "F.avg_pool2d(self.c(x), (8, 7), 3)",
        *conv("Transpose2", "3, 4, 13, 3, (2, 5), (2, 1), bias=False", "2, 3, 5, 6"),
        "mean before conv_transpose2d",
    ),
    "means of neighbours without all": (
        "F.avg_pool2d(self.c(x), 2, 3)",
        *conv("Transpose2", "4, 4, 5, stride=3"),
        "",
    ),
    "means of small windows": ("F.avg_pool2d(self.c(x), 2)", *WIDE, ""),
    "means of strided windows": (
        "F.avg_pool2d(self.c(x), 4)",
        *conv("2", "4, 6, 3, stride=2, padding=6"),
        "",
    ),
    "what is not linear": ("self.c(x).relu().mean(1)", *PRODUCT, ""),
}


def check(planned: Planned, identity: str) -> None:
    assert re.findall(r"^# identities: (.*)", planned.text, re.MULTILINE) == [identity] * bool(
        identity
    )
    planned.check()


@pytest.mark.parametrize("name", SHRUNK)
def test_products_and_convolutions_shrink(name: str, tmp_path: Path, compiled_folder: Path) -> None:
    forward, layers, x, identity = SHRUNK[name]
    problem = problem_of(tmp_path, forward, layers=layers, x=x)
    check(Planned(problem, "cpp", compiled_folder), f"the {identity}" if identity else "")


@pytest.mark.parametrize("forward", ["(x @ w.mT).sum(1)", "F.linear(x, w).mean()"])
def test_a_mean_does_not_repeat_what_no_product_repeats(
    forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, x="torch.randn(10, 12)", w="torch.randn(9, 12)")
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check(torch.randn(4, 1), torch.randn(5, 1))
    for x, w in (1, 12), (12, 1):
        with pytest.raises(ValueError, match="size 1 of w"):
            planned.run(torch.randn(10, x), torch.randn(9, w))


@pytest.mark.parametrize("kind", ["1", "Transpose1"])
def test_taps_outside_of_an_input_are_inside_of_a_longer_one(
    kind: str, tmp_path: Path, compiled_folder: Path
) -> None:
    layers, x = conv(kind, "2, 3, 3, padding=100, dilation=100", "2, 2, 30")
    problem = problem_of(tmp_path, "self.c(x).mean(2)", layers=layers, x=x)
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    planned.check(torch.randn(2, 2, 200))


@pytest.mark.parametrize(
    ("forward", "layers", "size"),
    [
        ("(self.c(x) * s).mean((2, 3))", WIDE[0], (2, 6, 1, 1)),
        ("F.avg_pool2d(self.c(x) - s.exp(), 4)", conv("2", "4, 6, 3")[0], (1, 6, 1, 1)),
        ("(self.c(x) + s).mean((2, 3))", "self.c = nn.InstanceNorm2d(4)", (1,)),
    ],
)
def test_given_ones_along_a_mean_may_become_more(
    forward: str, layers: str, size: tuple[int, ...], tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, layers=layers, x=WIDE[1], s=f"torch.randn({size})")
    planned = Planned(problem, "cpp", compiled_folder)
    x, _ = planned.inputs()
    result = planned.models()[0].c(x)
    for given in torch.randn(size), torch.randn_like(result), torch.randn_like(result[:1, :, :1]):
        planned.check(x, given)


@pytest.mark.parametrize("place", [0, 1, 6, -2, -1])
def test_infinity_reaches_means_as_its_results(
    place: int, tmp_path: Path, compiled_folder: Path
) -> None:
    layers, x = conv("1", "1, 3, 3, padding=1", "2, 1, 40")
    layers += "\nself.c.weight.data = torch.tensor([[[1.0, 1, 1]], [[0, 1, 1]], [[1, 1, -1]]])"
    problem = problem_of(tmp_path, "self.c(x).mean(2)", layers=layers, x=x)
    planned = Planned(problem, "cpp", compiled_folder)
    (given,) = planned.inputs()
    given[0, 0, place] = float("inf")
    planned.check(given)


@pytest.mark.parametrize("name", EARLY)
def test_means_come_before_what_is_linear(name: str, tmp_path: Path, compiled_folder: Path) -> None:
    forward, layers, operators = EARLY[name]
    layers += "\nself.n.weight.data.uniform_(-1, 1)\nself.n.bias.data.uniform_()"
    problem = problem_of(tmp_path, forward, layers=layers, x=X)
    identity = f"the mean before {operators}" if operators else ""
    check(Planned(problem, "cpp", compiled_folder), identity)


@pytest.mark.parametrize("forward", ["self.c(x).sum((0, 2))", "(self.c(x) - 1).sum((0, 1, 2))"])
def test_a_sum_over_nothing_is_zero(forward: str, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    layers = "self.c = nn.Linear(12, 9)"
    problem = problem_of(tmp_path, forward, layers=layers, x="torch.randn(4, 3, 12)")
    planned = Planned(problem, "cpp", compiled_folder)
    assert "# identities: the sum before linear" in planned.text
    planned.check()
    planned.check(torch.zeros(0, 3, 12))


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


# Without padding, the share of elements that are results is a number of each size.
@pytest.mark.parametrize(
    ("padding", "height", "identities"),
    [(0, 3, ()), *((1, height, ("the mean before conv2d, add",)) for height in (1, 2))],
)
def test_what_is_taken_first_is_the_same_in_all_cases(
    padding: int, height: int, identities: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "mean_of_a_convolution.yaml"
    layer = f"nn.Conv2d(channels, 3, 3, padding={padding})"
    other = PROBLEM.replace("nn.BatchNorm2d(channels)", layer)
    other = other.replace(".mean((0, 2, 3))", ".mean((2, 3))").replace("4, 8, 6, 5", "4, 8, 16, 15")
    file.write_text(other.replace("1, 8, 6, 1", f"1, 8, {height}, 40"))
    plan = plan_of_problem(load_problem(file), Case(name="main"), "cpu").plan
    assert plan.identities == identities
