"""Linear layers that a plan has multiplied by kernels of the file's own."""

import ctypes
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner
from planned_models import Planned, problem_of

from kernelgen.cli import program
from kernelgen.planning.graph import TensorType
from kernelgen.planning.of_problem import (
    LEAST_COLUMNS,
    LEAST_DEPTH,
    LEAST_ROWS,
    MOST_DEPTH,
    plan_of_problem,
)
from kernelgen.planning.plan import Library
from kernelgen.planning.rewrites.builder import strides_of
from kernelgen.problem.record import MAIN_CASE, Case, Device, Problem
from kernelgen.rendering.choose import choose_product
from kernelgen.rendering.planned import render_planned

LAYERS = """\
self.first = nn.Linear(1024, 2048)
self.second = nn.Linear(2048, 1024, bias=False)
self.third = nn.Linear(1024, 2048)"""
FORWARD = "self.third(torch.relu(self.second(torch.relu(self.first(x)))))"


def chain(folder: Path) -> Problem:
    return problem_of(folder, FORWARD, layers=LAYERS, x="torch.randn(1024, 1024)")


def own(problem: Problem, device: Device = "cuda") -> list[bool]:
    plan = plan_of_problem(problem, Case(name=MAIN_CASE, constants={}), device).plan
    return [s.own for s in plan.stages if isinstance(s, Library) and s.computes]


@pytest.mark.parametrize(
    ("layer", "x", "expected"),
    [
        ("nn.Linear(1024, 2048)", "torch.randn(1024, 1024)", True),
        ("nn.Linear(1024, 2048)", "torch.randn(2, 512, 1024)", True),
        ("nn.Linear(1024, 2048)", "torch.randn(1000, 1024)", False),
        ("nn.Linear(16384, 16384)", "torch.randn(128, 16384)", False),
        ("nn.Linear(16388, 1024)", "torch.randn(1024, 16388)", False),
    ],
)
def test_large_ones_are(layer: str, x: str, expected: bool, tmp_path: Path) -> None:  # noqa: FBT001
    problem = problem_of(tmp_path, "torch.relu(self.l(x))", layers=f"self.l = {layer}", x=x)
    assert own(problem) == [expected]
    assert own(problem, "cpu") == [False]


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("torch.matmul(x, self.w.T)", True),
        ("x @ self.w.mT", True),
        ("torch.mm(x, self.w.t())", True),
        ("x @ self.w.transpose(0, 1)", True),
        ("x @ self.w.permute(1, 0)", True),
        ("x @ self.w", False),
        ("x @ x.T", False),
    ],
)
def test_a_product_with_a_weights_transpose_is_a_linear_layer(
    product: str,
    expected: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    problem = problem_of(
        tmp_path,
        f"torch.relu({product})",
        layers="self.w = nn.Parameter(torch.randn(2048, 2048))",
        x="torch.randn(2048, 2048)",
    )
    assert own(problem) == [expected]


@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 3, 16)])
def test_it_gives_what_the_product_gives(
    shape: tuple[int, ...], tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(
        tmp_path,
        "torch.relu(torch.matmul(x, self.w.T)) + torch.matmul(x, self.table.mT)",
        layers="""\
self.w = nn.Parameter(torch.randn(7, 16))
self.register_buffer("table", torch.randn(7, 16))""",
        x=f"torch.randn{shape}",
    )
    planned = Planned(problem, "cpp", compiled_folder)
    assert planned.text.count("torch.ops.aten.linear.default(") == 2
    planned.check()


@pytest.mark.parametrize("depth", [LEAST_DEPTH, MOST_DEPTH])
def test_what_the_planner_wants_has_a_kernel(depth: int) -> None:
    def dense(*shape: int) -> TensorType:
        return TensorType(shape=shape, strides=strides_of(shape), dtype="float32")

    chosen = choose_product(dense(LEAST_ROWS, depth), dense(LEAST_COLUMNS, depth), "sm_90a")
    assert chosen.kernel == "hopper"


def test_layers_of_one_shape_share_a_kernel(tmp_path: Path) -> None:
    problem = chain(tmp_path)
    assert own(problem) == [True] * 3
    text = render_planned(problem, "cuda", {})
    assert text.count("namespace product {") == text.count("namespace product_2 {") == 1
    assert "product_3" not in text
    assert text.count(" = _product(") + text.count("return _product(") == 2
    assert "flags = CUDA_FLAGS + (HOPPER_FLAGS" in text


def test_where_tensor_cores_do_not_multiply_it_stays_in_torch(tmp_path: Path) -> None:
    other = render_planned(chain(tmp_path), "cuda", {}, arch="sm_80")
    assert "HOPPER" not in other
    assert "# backend: cuda\n" in other
    assert other.count("torch.ops.aten.linear.default(") == 3


@pytest.mark.nvcc
def test_it_compiles(tmp_path: Path) -> None:
    path = tmp_path / "chain.py"
    path.write_text(render_planned(chain(tmp_path), "cuda", {}))
    result = CliRunner().invoke(program, ["build", str(path), "--arch", "sm_90a"])
    assert result.exit_code == 0, result.output


class Library_(dict[str, Any]):  # noqa: N801 (stands for a library)
    """Multiplies what its arguments point to as `product_launch` does."""

    def __missing__(self, name: str) -> Any:
        if name.endswith("_workspace_bytes"):
            return mock.Mock(return_value=0)
        return self._launch

    def _launch(self, *given: Any) -> int:
        import torch

        a, b, bias, out, _, *sizes, _ = (argument.value for argument in given)
        batches, rows, columns, depth, *strides = sizes
        assert (batches, strides) == (1, [0, depth, 1, 0, depth, 1])

        def at(address: int, *shape: int) -> Any:
            count = torch.Size(shape).numel()
            memory = (ctypes.c_float * count).from_address(address)
            return torch.frombuffer(memory, dtype=torch.float32).view(shape)

        product = at(a, rows, depth) @ at(b, columns, depth).mT
        at(out, rows, columns).copy_(product if not bias else product + at(bias, columns))
        return 0


def test_forward_gives_the_kernels_what_they_take(tmp_path: Path) -> None:
    import torch

    problem = chain(tmp_path)
    text = render_planned(problem, "cuda", {}).replace('.type != "cuda"', '.type != "cpu"')
    space: dict[str, Any] = {"__name__": "solution"}
    exec(compile(text, "<solution>", "exec"), space)
    space["_library"] = Library_
    space["_relu"] = torch.relu
    reference: dict[str, Any] = {"__name__": "reference"}
    assert problem.module_source is not None
    exec(compile(problem.module_source, "<reference>", "exec"), reference)
    with (
        mock.patch("torch.cuda.device", return_value=nullcontext()),
        mock.patch("torch.cuda.current_stream", return_value=SimpleNamespace(cuda_stream=0)),
        torch.no_grad(),
    ):
        torch.manual_seed(1)
        expected = reference["Model"]()
        torch.manual_seed(1)
        found = space["ModelNew"]()
        for rows in (1024, 3):
            x = torch.randn(rows, 1024)
            torch.testing.assert_close(found(x), expected(x))
