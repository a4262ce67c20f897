"""Segments: a reduction and a map in one kernel, in C++ and in the CUDA emulation."""

from pathlib import Path

import pytest
from planned_models import Planned, plan_in, problem_of

from kernelgen.planning.plan import Map, Plan, Reduce, Segment
from kernelgen.planning.segments import with_maps_fused
from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
RMS = "x / torch.sqrt((x ** 2).mean(dim=1, keepdim=True) + 1e-5)"
LAYER_NORM = "self.n = nn.LayerNorm({})"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "layers", "inputs"),
    [
        # Columns, each held by a thread.
        (RMS, "pass", {"x": "torch.randn(3, 8, 5, 7)"}),
        ("torch.softmax(x, 1)", "pass", {"x": "torch.randn(3, 128, 50)"}),
        (
            "(x - x.amin((1, 2), keepdim=True)) * y / s",
            "pass",
            {"x": "torch.randn(2, 3, 4, 6)", "y": "torch.randn(2, 1, 1, 6)", "s": "2.5"},
        ),
        (
            "x * y / (x + y).sum(0, keepdim=True).abs().add(1)",
            "pass",
            {"x": "torch.randn(9, 33)", "y": "torch.randn(9, 33)"},
        ),
        (
            "torch.softmax(x, 1) + y",
            "pass",
            {"x": "torch.randn(2, 128, 9)", "y": "torch.randn(128, 1)"},
        ),
        # Inputs that are called like functions and variables of the kernels.
        (
            "self.n(add + mean * s) * mapped + largest",
            LAYER_NORM.format(16),
            {
                "add": "torch.randn(7, 16)",
                "mean": "torch.randn(7, 16)",
                "s": "2.5",
                "mapped": "torch.randn(16)",
                "largest": "torch.randn(16)",
            },
        ),
        # Rows, in a few lanes, a warp and a block; the values of a lane as vectors or one by one.
        ("torch.relu(self.n(x)) + x", LAYER_NORM.format(16), {"x": "torch.randn(70, 16)"}),
        ("torch.log_softmax(x, -1)", "pass", {"x": "torch.randn(40, 13)"}),
        (
            "self.n(x + y)",
            LAYER_NORM.format(300),
            {"x": "torch.randn(5, 300)", "y": "torch.randn(300)"},
        ),
        (
            "self.n(x) * y",
            LAYER_NORM.format(2052),
            {"x": "torch.randn(3, 2052)", "y": "torch.randn(3, 1)"},
        ),
        ("torch.softmax(x, 1)", "pass", {"x": "torch.randn(3, 1001)"}),
        (
            "x > x.amax(2, keepdim=True) - 0.5",
            "pass",
            {"x": "torch.randn(3, 5, 20)"},
        ),
        # Groups, with what stands before and after.
        (
            "F.hardtanh(self.n(torch.relu(x * self.b))) + y",
            "self.n = nn.GroupNorm(4, 12)\nself.b = nn.Parameter(torch.ones(12, 1, 1))",
            {"x": "torch.randn(3, 12, 5, 3)", "y": "torch.randn(3, 12, 5, 3)"},
        ),
        (
            "self.n(x)",
            "self.n = nn.InstanceNorm2d(6, affine=True)",
            {"x": "torch.randn(2, 6, 8, 9)"},
        ),
    ],
)
def test_one_kernel(  # noqa: PLR0913, PLR0917 - pytest's
    backend: Backend,
    forward: str,
    layers: str,
    inputs: dict[str, str],
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    problem = problem_of(tmp_path, forward, layers=layers, **inputs)
    planned = Planned(problem, backend, compiled_folder)
    planned.check()
    assert len(planned.launched) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "shape"),
    [(RMS, "(3, 8, 4, 4)"), ("torch.softmax(x, 1) + x.mean(1, keepdim=True)", "(8, 64, 1, 1)")],
)
def test_other_inputs_than_the_main_one(
    backend: Backend, forward: str, shape: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    problem = problem_of(tmp_path, forward, x=f"torch.randn{shape}")
    planned = Planned(problem, backend, compiled_folder)
    for other in [(1, 8, 4, 4), (5, 8, 4, 4), (8, 64, 1, 1), (3, 9, 4, 4), (2, 700, 1, 1)]:
        planned.check(torch.randn(other))
    for other in [(3, 8, 5, 5), (2, 1, 3, 3), (1, 300, 40, 1), (0, 8, 4, 4), (3, 8, 0, 4)]:
        planned.check(torch.randn(other))
    planned.check(torch.randn(3, 4, 4, 8).permute(0, 3, 1, 2))
    planned.check(torch.randn(3 * 128 + 1)[1:].view(3, 8, 4, 4))
    planned.check(torch.randn(8 * 64 + 1)[1:].view(8, 64, 1, 1))
    with pytest.raises(ValueError, match="number of dimensions"):
        planned.run(torch.randn(3, 8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", ["(4, 6, 5)", "(3, 24)"])
def test_values_out_of_the_way(
    backend: Backend, shape: str, tmp_path: Path, compiled_folder: Path
) -> None:
    """Of the exact result; an infinity is where torch has it, and NaN."""
    import torch

    forward = "(torch.softmax(x, 1), x - x.amax(1, keepdim=True), x - x.amin(1, keepdim=True))"
    planned = Planned(
        problem_of(tmp_path, forward, x=f"torch.randn{shape}"), backend, compiled_folder
    )
    x = 50 * torch.randn(eval(shape)) + 1e4
    planned.check(x)
    x[0, 1], x[1, 2], x[2, 0] = float("inf"), float("-inf"), float("nan")
    planned.check(x)
    planned.check(torch.full_like(x, -float("inf")))


def test_a_mean_far_from_zero_and_a_constant_row(tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    problem = problem_of(
        tmp_path, "self.n(x)", layers=LAYER_NORM.format(64), x="torch.randn(9, 64)"
    )
    for backend in BACKENDS:
        planned = Planned(problem, backend, compiled_folder)
        planned.check(torch.randn(9, 64) + 30)
        planned.check(torch.randn(9, 64) * 1e-3)
        x = torch.randn(9, 64)
        x[::2] = 0.125
        planned.check(x)


def fused(folder: Path, forward: str, layers: str = "pass", **inputs: str) -> Plan:
    return with_maps_fused(plan_in(folder, forward, layers=layers, **inputs))


@pytest.mark.parametrize(
    ("forward", "x"),
    [
        (RMS, "torch.randn(3, 129, 2)"),
        ("torch.softmax(x, 1)", "torch.randn(3, 8193)"),
        ("x / x.sum((0, 2), keepdim=True)", "torch.randn(3, 8, 4)"),
        ("x / x.prod(1, keepdim=True)", "torch.randn(3, 8)"),
        ("(lambda m: (x / m, m))(x.sum(1, keepdim=True))", "torch.randn(3, 8)"),
        ("x / x.sum(0)", "torch.randn(8, 8)"),
    ],
)
def test_what_stays_two_stages(forward: str, x: str, tmp_path: Path) -> None:
    stages = fused(tmp_path, forward, x=x).stages
    assert [type(stage) for stage in stages] == [Reduce, Map]


def test_each_of_two_norms_is_a_segment(tmp_path: Path) -> None:
    forward = "(self.n(x), torch.softmax(y, 1))"
    shapes = {"x": "torch.randn(3, 8)", "y": "torch.randn(3, 8)"}
    plan = fused(tmp_path, forward, LAYER_NORM.format(8), **shapes)
    assert [type(stage) for stage in plan.stages] == [Segment, Segment]
