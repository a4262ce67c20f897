"""Products that a plan has multiplied by kernels of the file's own."""

import re
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from planned_models import Planned, problem_of

from kernelgen.cli import program
from kernelgen.engines.product import claims
from kernelgen.engines.product.choice import choose_product
from kernelgen.engines.product.claims import LEAST_ROWS, LEAST_SIZE
from kernelgen.engines.product.record import Product
from kernelgen.engines.stage import Library
from kernelgen.graph.graph import TensorType, strides_of
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import MAIN_CASE, Case, Device, Problem
from kernelgen.rendering.planned import render_planned

MOST_DEPTH = 16384  # that the split holds of a row
LAYERS = """\
self.first = nn.Linear(1024, 2048)
self.second = nn.Linear(2048, 1024, bias=False)
self.third = nn.Linear(1024, 2048)"""
FORWARD = "self.third(torch.relu(self.second(torch.relu(self.first(x)))))"


def chain(folder: Path) -> Problem:
    return problem_of(folder, FORWARD, layers=LAYERS, x="torch.randn(1024, 1024)")


def own(problem: Problem, device: Device = "cuda") -> list[bool]:
    plan = plan_of_problem(problem, Case(name=MAIN_CASE, constants={}), device).plan
    computing = (s for s in plan.stages if not isinstance(s, Library) or s.computes)
    return [isinstance(s, Product) for s in computing if isinstance(s, Library | Product)]


@pytest.mark.parametrize(
    ("layer", "x", "expected"),
    [
        ("nn.Linear(1024, 2048)", "torch.randn(1024, 1024)", True),
        ("nn.Linear(1024, 2048)", "torch.randn(2, 512, 1024)", True),
        ("nn.Linear(1024, 2048)", "torch.randn(1000, 1024)", False),
        ("nn.Linear(16384, 16384)", "torch.randn(40, 16384)", True),
        ("nn.Linear(16384, 16384)", "torch.randn(1, 16384)", False),
        ("nn.Linear(2048, 2048)", "torch.randn(40, 2048)", False),
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
        ("x @ self.w", True),
        ("x @ x.T", True),
        ("torch.addmm(self.bias, x, self.w)", True),
        ("torch.addmm(self.bias, x, self.w, alpha=2)", False),
        ("torch.addmm(x, x, self.w)", False),
        ("torch.einsum('ij,kj->ik', x, self.w)", True),
        ("torch.einsum('ji,jk->ik', x, self.w)", True),
        ("torch.einsum('ij,jk->ki', x, self.w)", False),
        ("torch.einsum('bij,bij->bij', x[None], self.w[None])", False),
        ("x @ self.w[0]", False),
        ("x @ self.w[:, :64]", False),
        ("torch.cat([x, x, x, x]) @ self.w[:, :64]", True),
        ("x.half() @ self.w.half()", True),
        ("x.half() @ self.w[:, :2044].half()", False),
        ("x[:64] @ self.w", False),
    ],
)
def test_a_product_is_one_however_it_is_written(
    product: str,
    expected: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    problem = problem_of(
        tmp_path,
        f"torch.relu({product})",
        layers="""\
self.w = nn.Parameter(torch.randn(2048, 2048))
self.bias = nn.Parameter(torch.randn(2048))""",
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


@pytest.mark.parametrize("depth", [LEAST_SIZE, MOST_DEPTH])
def test_what_the_planner_wants_has_a_kernel(depth: int) -> None:
    def dense(*shape: int) -> TensorType:
        return TensorType(shape=shape, strides=strides_of(shape), dtype="float32")

    chosen = choose_product(dense(LEAST_ROWS, depth), dense(LEAST_SIZE, depth), "sm_90a")
    assert chosen.kernel == "skinny"  # whose few columns are a quarter of the rows
    chosen = choose_product(dense(LEAST_ROWS, depth), dense(LEAST_SIZE + 4, depth), "sm_90a")
    assert chosen.kernel == "hopper"


@pytest.mark.parametrize(
    ("forward", "fused"),
    [
        ("torch.relu(self.l(x)) * 2 + 1", True),
        ("F.gelu(self.l(x) / 10)", True),
        ("F.mish(F.mish(self.l(x)))", False),
        ("torch.tanh(self.l(x)).sigmoid()", False),
        ("self.l(x) > 0", False),
        ("(self.l(x) > 0, self.l(x) * 2)", False),
    ],
)
def test_only_what_tensor_cores_hardly_wait_for_is_in_an_epilogue(
    forward: str,
    fused: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    problem = problem_of(
        tmp_path, forward, layers="self.l = nn.Linear(1024, 2048)", x="torch.randn(1024, 1024)"
    )
    plan = plan_of_problem(problem, Case(name=MAIN_CASE, constants={}), "cuda").plan
    kinds = [type(stage).__name__ for stage in plan.stages]
    assert kinds[0] == "Product"
    assert ("Map" not in kinds) == fused


def test_layers_of_one_shape_share_a_kernel(tmp_path: Path) -> None:
    problem = chain(tmp_path)
    assert own(problem) == [True] * 3
    text = render_planned(problem, "cuda", {})
    # The first two have what follows them in their epilogue, the first one and the last a bias.
    names = re.findall(r"^namespace (linear\w*) {", text, re.MULTILINE)
    assert names == ["linear_relu", "linear_2_relu_2", "linear_3"]
    assert text.count("torch.ops.aten.linear") == text.count("map_") == 0
    assert "flags = CUDA_FLAGS + (HOPPER_FLAGS" in text
    again = problem_of(
        tmp_path,
        "torch.relu(self.third(torch.relu(self.second(torch.relu(self.first(x))))))",
        layers=LAYERS,
        x="torch.randn(1024, 1024)",
    )
    text = render_planned(again, "cuda", {})
    assert text.count('_multiply("') == 2
    assert text.count("_linear_relu(") == 3


def test_where_tensor_cores_do_not_multiply_it_stays_in_torch(tmp_path: Path) -> None:
    other = render_planned(chain(tmp_path), "cuda", {}, arch="sm_80")
    assert "HOPPER" not in other
    assert "# backend: cuda\n" in other
    assert other.count("torch.ops.aten.linear.default(") == 3


LINEAR = "self.c = nn.Linear(96, {})"
# A product of few rows, its layers, the shape of x, and how many kernels read it or its result.
FEW_ROWS = {
    "a layer": ("self.c(x)", LINEAR.format(290), "70, 96", 1),
    "many tiles": ("self.c(x).tanh() * 2", LINEAR.format(1300), "130, 96", 1),
    "no bias": ("F.linear(x, self.w)", "self.w = nn.Parameter(torch.randn(40, 96))", "9, 96", 1),
    "a matrix": ("(x @ self.w).relu()", "self.w = nn.Parameter(torch.randn(96, 152))", "9, 96", 1),
    "columns gathered": ("self.c(x).sigmoid().sum(1)", LINEAR.format(300), "20, 96", 2),
    "windows": ("F.max_pool1d(self.c(x), 2)", LINEAR.format(301), "20, 96", 2),
    "rows gathered": ("self.c(x).amax(0)", LINEAR.format(150), "20, 96", 2),
    "a residual": ("self.c(x) + x", "self.c = nn.Linear(160, 160)", "33, 160", 1),
    "another's result": ("self.c(x.relu())", LINEAR.format(150), "3, 96", 2),
}


@pytest.mark.ci
@pytest.mark.parametrize("name", FEW_ROWS)
def test_a_product_of_few_rows_gives_what_torch_gives(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    forward, layers, shape, launches = FEW_ROWS[name]
    problem = problem_of(tmp_path, forward, layers=layers, x=f"torch.randn({shape})")
    with mock.patch.object(claims, "_pays", return_value=True):
        it = Planned(problem, "cuda", compiled_folder)
    it.check()
    assert len(it.launched) == launches
    assert "namespace skinny" in it.text
    (x,) = it.inputs()
    it.check(torch.cat([x, x[:2]]))
    it.check(x[:1])
    it.check(torch.cat([x, x], 1)[:, ::2])  # neighbours that are apart
    with pytest.raises((ValueError, RuntimeError)):
        it.run(x[:, :32])


@pytest.mark.ci
def test_rows_of_no_aligned_vectors_are_right(tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward, layers, shape, _ = FEW_ROWS["no bias"]
    problem = problem_of(tmp_path, forward, layers=layers, x=f"torch.randn({shape})")
    with mock.patch.object(claims, "_pays", return_value=True):
        it = Planned(problem, "cuda", compiled_folder)
    reference, candidate = it.models()
    shifted = torch.randn(40 * 96 + 1)[1:].view(40, 96)
    reference.w.data, candidate.w.data = shifted, shifted
    (x,) = it.inputs()
    exact = reference.double()(x.double())
    candidate.w.data = shifted.float()
    torch.testing.assert_close(it.run(x, model=candidate).double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.nvcc
def test_it_compiles(tmp_path: Path) -> None:
    path = tmp_path / "chain.py"
    # Operands that are read for each element have names beside the launch's own.
    problem = problem_of(
        tmp_path,
        FORWARD.replace("torch.relu(self.second(", "torch.relu(self.bias - batches * self.second("),
        layers=f"{LAYERS}\nself.bias = nn.Parameter(torch.randn(1024))",
        x="torch.randn(1024, 1024)",
        batches="2.0",
    )
    text = render_planned(problem, "cuda", {})
    assert "beside_bias" in text
    assert "beside_batches" in text
    path.write_text(text)
    result = CliRunner().invoke(program, ["build", str(path), "--arch", "sm_90a"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("layer", "x", "is_product"),
    [
        ("nn.Conv1d(12, 20, 1, groups=4)", "torch.randn(3, 12, 7)", True),
        ("nn.Conv1d(12, 20, 1, groups=4)", "torch.randn(12, 7)", True),
        ("nn.Conv2d(12, 8, 1, groups=2, bias=False)", "torch.randn(3, 12, 5, 7)", True),
        ("nn.Conv3d(6, 12, 1, groups=3)", "torch.randn(2, 6, 3, 4, 5)", True),
        ("nn.Conv1d(12, 20, 1)", "torch.randn(3, 12, 7)", False),
        ("nn.Conv2d(12, 12, 1, groups=12)", "torch.randn(3, 12, 5, 7)", False),
        ("nn.Conv2d(12, 8, 1, 2, groups=2)", "torch.randn(3, 12, 5, 7)", False),
        ("nn.Conv2d(12, 8, 1, padding=1, groups=2)", "torch.randn(3, 12, 5, 7)", False),
        ("nn.Conv2d(12, 8, (1, 2), groups=2)", "torch.randn(3, 12, 5, 7)", False),
        ("nn.ConvTranspose2d(12, 8, 1, groups=2)", "torch.randn(3, 12, 5, 7)", False),
    ],
)
def test_a_convolution_of_one_tap_is_a_product_of_each_group(
    layer: str,
    x: str,
    is_product: bool,  # noqa: FBT001
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    problem = problem_of(tmp_path, "torch.relu(self.l(x)) + 1", layers=f"self.l = {layer}", x=x)
    plan = plan_of_problem(problem, Case(name=MAIN_CASE, constants={}), "cuda").plan
    called = [stage.aten for stage in plan.stages if isinstance(stage, Library) and stage.computes]
    assert ("matmul.default" in called) == is_product
    assert any(one.startswith("conv") for one in called) != is_product
    it = Planned(problem, "cuda", compiled_folder)
    it.check()
    (given,) = it.inputs()
    if given.dim() > 2:
        it.check(given[:2].repeat_interleave(2, -1))  # of other sizes
