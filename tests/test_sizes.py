"""Numbers that follow sizes of the inputs: read when the file runs, or the sizes are fixed."""

import re
from pathlib import Path

import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import Backend, Case

pytestmark = pytest.mark.sampled(rest="ci")
X = "torch.randn(6, 10)"
BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")


@pytest.mark.parametrize(
    ("forward", "fixed"),
    [
        ("x * 2", ""),
        ("x / x.size(0)", ""),
        ("x / (3 * x.size(1)) + x.shape[0]", ""),
        ("x * self.w", "1 of x"),
        ("x / x.size(0) ** 0.5", "0 of x"),
        ("x * 2 if len(x) > 3 else x", "0 of x"),
        ("x.relu()[:, : int(x.size(1) * 0.5)]", "1 of x"),
        ("x * 2 if x.numel() > 50 else x", "all of x"),
        ("x.size(0) * x + x.relu()", ""),
        ("x / (x.size(0) * x.size(1))", "1 of x"),
        ("x.cumsum(1) / torch.arange(1, x.size(1) + 1)", "1 of x"),
        ("x.relu().chunk(x.size(0))[0]", "0 of x"),
        ("x.relu().split(3)[1]", "0 of x"),
        ("x.masked_fill(x > 1, float('nan'))", ""),
        ("x.relu() if x.size(0) == 6 else x", "0 of x"),
        ("x * 2 if x.size(0) % 2 else x * 3", "0 of x"),
        ("x * 2 if x.shape[-1] > 3 else x * 3", "1 of x"),
        ("x * max(2, x.shape[0] - 9)", "0 of x"),
        ("x.relu()[: min(x.size(0), 3)]", "0 of x"),
        ("F.pad(x, (0, -x.size(1) % 5)).relu()", "1 of x"),
        ("x.relu().reshape(-1, x.size(1) // 5 * 5) * 2", "1 of x"),
        ("x * (2 if x.sum(0, True).shape[0] == 1 else 3)", ""),
        ("x * (2 if x.sum(0, True).shape[1] == 1 else 3)", "1 of x"),
        ("x * (2 if x.is_contiguous() else 3)", ""),
        ("x * 2 if int(x.size(0)) > 4 else x", "0 of x"),
        ("x * 2 if x.shape[0] & 1 else x", "0 of x"),
        ("x * {1: 2, 3: 4}.get(x.size(0), 5)", "0 of x"),
        ("x * 2 if abs(+x.size(0)) > 4 else x", "0 of x"),
        ("x * 2 if x.size(1).bit_length() > 3 else x", "1 of x"),
        ("x * 2 if x.shape[1:].numel() > 4 else x", "1 of x"),
        ("x * 2 if np.prod(x.shape[1:]) > 4 else x", "1 of x"),
        ("x * math.gcd(x.size(0), 6)", "0 of x"),
        ("torch.where(torch.tensor(x.size(0)) > 4, x, -x)", "0 of x"),
        # By functions in C, which ask a whole number for nothing.
        ("x * (2 if 1.0 / x.size(0) > 0.1 else 3)", "0 of x"),
        ("x * (2 if np.sqrt(x.size(0)) > 2 else 3)", "0 of x"),
        ("x * len(str(x.size(0) - 5))", "0 of x"),
        ("x * len([0, 1, 2, 3][: x.size(0)])", "0 of x"),
        ("x * sum(1 for _ in zip(range(x.size(0)), 'abcd'))", "0 of x"),
        ("x * 2 if str(x.shape) == 'torch.Size([6, 10])' else x", "all of x"),
        ("x * (0.5 * x.size(0) % 1)", "0 of x"),
        ("x * (2 if isinstance(x.shape, torch.Size) else 3)", ""),
        ("x.relu().view(abs(x.size(0)), -1) + torch.rand(f'{x.shape}'.count(','))", ""),
    ],
)
def test_which_sizes_are_free(forward: str, fixed: str, tmp_path: Path) -> None:
    layers = "self.w = nn.Parameter(torch.ones(10))" if "self.w" in forward else "pass"
    top = "import math\nimport numpy as np"
    problem = problem_of(tmp_path, forward, layers=layers, top=top, x=X)
    assert plan_of_problem(problem, Case(name="main"), "cpu").plan.fixed_sizes() == fixed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "x.exp() / (3 * x.size(1)) + x.shape[0]",
        "F.max_pool1d(x.exp() * 2, x.size(1))",
        "F.adaptive_avg_pool2d(x.exp()[None] * 2, (x.size(0), 1))",
        "F.layer_norm(x, x.shape[-1:])",
        "F.layer_norm(x + x.mean(0), x.shape[1:]) * 2",
        "F.rms_norm(x.exp(), x.shape) + F.layer_norm(x, (x.shape[1],), x[0], x[-1])",
    ],
)
def test_sizes_are_those_of_the_call(
    backend: Backend, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, x=X)
    planned = Planned(problem, backend, compiled_folder)
    for shape in (6, 10), (5, 7), (1, 3):
        planned.check(torch.randn(shape))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "x.reshape(x.size(0), -1).relu()",
        "x.relu().sum(0) / x.size(0)",
        "(x.exp() + y).view(x.size(0), 2, 5, -1).softmax(-1)",
        "F.conv2d(x[None], y.mean((1, 2)).view(-1, 1, 1, 1), groups=x.size(0)) * 2",
        "F.scaled_dot_product_attention(*(3 * [x.unflatten(-1, (2, 2)).transpose(1, 2)])) * 2",
    ],
)
def test_a_size_of_one_is_that_of_the_call(
    backend: Backend, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    x = "torch.randn(1, 10, 4)"
    planned = Planned(problem_of(tmp_path, forward, x=x, y=x), backend, compiled_folder)
    for batch in 1, 3, 2:
        planned.check(*torch.randn(2, batch, 10, 4))


@pytest.mark.parametrize(
    ("forward", "size", "refused"),
    [
        # No multiple of the size, or none that a trace with another can tell.
        ("x * (1 + y.size(0))", 1, 2),
        ("x * (1 + y.size(0)) + y.sum()", 0, 2),
        ("x.relu() / (y.size(0) + 0.5)", 1, 0),
    ],
)
def test_a_size_of_one_or_none_is_refused_where_another_is_not_understood(
    forward: str, size: int, refused: int, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, x=X, y=f"torch.randn({size}, 10)")
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check(torch.randn(4, 10), torch.randn(size, 10))
    with pytest.raises(ValueError, match=f"0 of y: the file is for .*{size}"):
        planned.run(torch.randn(4, 10), torch.randn(refused, 10))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "(x * 2, y.exp() * 2)",
        "(x.sum(0), y.sum(0) + 1, x.amax(0))",
        "x.mean() + y.square().mean()",
        "tuple(part.exp() for part in x.tensor_split(3))",
    ],
)
def test_what_is_alike_at_the_main_sizes_alone_is_computed_apart(
    backend: Backend, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, forward, x=X, y=X), backend, compiled_folder)
    for rows in (6, 6), (5, 7), (1, 3), (8, 2):
        planned.check(*(torch.randn(n, 10) for n in rows))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "x.exp() / x.size(1) + x.size(0)",
        "x.relu().view(x.size(1), x.size(0)) * 2",
        "torch.arange(x.size(1)) * x + torch.arange(x.size(0))[:, None]",
        "x.relu().reshape(x.size(0) * 2, -1).sum(1) + x.shape[1]",
    ],
)
def test_sizes_that_are_equal_by_chance_are_two(
    backend: Backend, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, forward, x="torch.rand(8, 8)"), backend, compiled_folder)
    for shape in (8, 8), (8, 4), (4, 8), (3, 6), (1, 2):
        planned.check(torch.randn(shape))


def test_the_first_of_three_equal_sizes_is_one_alone(tmp_path: Path, compiled_folder: Path) -> None:
    forward = "(x @ x.mT).view(x.size(0), x.size(1), x.size(1)) * 2"
    planned = Planned(
        problem_of(tmp_path, forward, x="torch.rand(6, 6, 6)"), "cpp", compiled_folder
    )
    for shape in (6, 6, 6), (2, 5, 5), (1, 4, 4):
        planned.check(torch.rand(shape))


def test_rows_of_a_buffer_are_as_many_as_it_has(tmp_path: Path, compiled_folder: Path) -> None:
    layers, before = "self.register_buffer('b', torch.zeros(8, 10))", "self.b[:5] = x[:5]"
    problem = problem_of(tmp_path, "self.b * 2", layers=layers, before=before, x=X)
    planned = Planned(problem, "cpp", compiled_folder)
    for rows in 6, 5, 1:
        planned.check(torch.randn(rows, 10))
    with pytest.raises(RuntimeError, match="expanded size"):
        planned.run(torch.randn(3, 10))


def test_a_size_that_is_not_understood_is_refused(tmp_path: Path, compiled_folder: Path) -> None:
    planned = Planned(problem_of(tmp_path, "x / x.size(0) ** 0.5", x=X), "cpp", compiled_folder)
    planned.check()
    with pytest.raises(ValueError, match="sizes 0 of x: the file is for"):
        planned.run(torch.randn(5, 10))


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("x / x.size(2) ** 0.5", r"sizes 2 of x: the file is for (4,), got ()"),
        ("F.avg_pool2d(x.exp(), 2)", "expected channels and 2 dimensions, got (6, 5)"),
    ],
)
def test_fewer_dimensions_are_refused(
    forward: str, words: str, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(
        problem_of(tmp_path, forward, x="torch.rand(6, 5, 4)"), "cpp", compiled_folder
    )
    planned.check()
    with pytest.raises(ValueError, match=re.escape(words)):
        planned.run(torch.randn(6, 5))


@pytest.mark.parametrize(
    ("forward", "other"),
    [
        ("x * 2 if x.dim() == 3 else x", (6, 5)),
        ("x * (2 if x.relu().ndim == 3 else 3)", (1, 6, 5, 4)),
        ("x + len(x.shape)", (5, 4)),
        ("x * 2 if y.dim() == 3 else x", (6, 5)),
        ("x * x.size(-1) + x.shape[-2]", (1, 6, 5, 4)),
        ("x * x.new_ones(x.shape[1:]).sum()", (5, 4)),
        ("x * torch.zeros((x.size(0), *x.shape[1:])).exp()", (1, 5, 4)[1:]),
        ("x.relu() + torch.ones((1,) + x.shape)", (5, 4)),
        ("x[..., 0] * 2", (5, 4)),
        ("x.exp().view(x.size(0), -1) * 2", (1, 6, 5, 4)),
        ("x.exp().flatten(1) * 2", (1, 6, 5, 4)),
        ("x / x.shape[-1] ** 0.5", (2, 3, 4, 5)),
        ("(x / x.size(-2) ** 0.5).sum()", (3, 5, 4, 2)),
    ],
)
def test_a_number_of_dimensions_that_forward_asks_for_is_that_of_the_call(
    forward: str, other: tuple[int, ...], tmp_path: Path, compiled_folder: Path
) -> None:
    x = "torch.rand(6, 5, 4)"
    planned = Planned(problem_of(tmp_path, forward, x=x, y=x), "cpp", compiled_folder)
    planned.check()
    planned.check(*torch.rand(2, 3, 5, 4))
    with pytest.raises(ValueError, match=rf"dimensions of \w: .* 3, got {len(other)}"):
        planned.run(*torch.rand(2, *other))


def test_a_number_of_dimensions_that_forward_does_not_ask_for_is_free(
    tmp_path: Path, compiled_folder: Path
) -> None:
    forward = "(x / x.size(0)).exp() + x.shape[0]"
    planned = Planned(problem_of(tmp_path, forward, x=X), "cpp", compiled_folder)
    for shape in (6, 10), (2, 3, 4), (5,):
        planned.check(torch.randn(shape))


@pytest.mark.parametrize("size", ["x.shape[0]", "y.shape[0]"])
def test_a_size_of_two_inputs_is_that_of_both(
    tmp_path: Path, compiled_folder: Path, size: str
) -> None:
    """A trace does not tell which of them it is: one that is broadcast has another."""
    problem = problem_of(tmp_path, f"(x + y).relu() / {size}", x=X, y=X)
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check(torch.randn(5, 10), torch.randn(5, 10))
    with pytest.raises(ValueError, match="size 0 of y: the file is for 5, got 1"):
        planned.run(torch.randn(5, 10), torch.randn(1, 10))


def test_a_size_of_what_is_not_read_is_that_of_the_call(
    tmp_path: Path, compiled_folder: Path
) -> None:
    given = "[{'x': torch.randn(4, 8), 'y': torch.randn(3, 8)}]"
    forward = "d['y'].relu() / d['x'].shape[0]"
    planned = Planned(problem_of(tmp_path, forward, takes="d", given=given), "cpp", compiled_folder)
    d = {"x": torch.randn(6, 8), "y": torch.randn(3, 8)}
    torch.testing.assert_close(planned.run(d), d["y"].relu() / 6)


@pytest.mark.parametrize("given", ["torch.randn(4, 8)", "torch.randn(8, 4).t()"])
@pytest.mark.parametrize("asked", ["x.is_contiguous()", "x.t().stride(1) == 1"])
def test_a_layout_that_forward_asks_for_is_that_of_the_call(
    given: str, asked: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    problem = problem_of(tmp_path, f"x * 2 if {asked} else x * 3", x=given)
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    (x,) = planned.reference["get_inputs"]()
    other = torch.randn(4, 8) if given.endswith("t()") else torch.randn(8, 4).t()
    planned.check(x + 1)
    with pytest.raises(ValueError, match=r"x\.(is_contiguous|stride)\(\): the file is for"):
        planned.run(other)
