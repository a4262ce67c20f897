"""A convolution's bias is added by the kernel behind it."""

from pathlib import Path

import pytest
from planned_models import Planned, plan_in, problem_of

from kernelgen.engines.stage import Library
from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")
CONVOLUTIONS = [
    ("nn.Conv1d(8, 6, 3)", "torch.randn(3, 8, 5)", "torch.relu(y)"),
    ("nn.Conv2d(8, 6, 3)", "torch.randn(3, 8, 5, 9)", "F.max_pool2d(y, 2)"),
    ("nn.Conv3d(8, 6, 1)", "torch.randn(3, 8, 2, 3, 2)", "y.mean((2, 3, 4)) + y.amax()"),
    ("nn.ConvTranspose1d(8, 6, 2)", "torch.randn(3, 8, 5)", "F.group_norm(y, 3)"),
    ("nn.ConvTranspose2d(8, 6, 3)", "torch.randn(8, 5, 4)", "torch.softmax(y, 0)"),
    ("nn.ConvTranspose3d(8, 6, 2, groups=2)", "torch.randn(1, 8, 2, 3, 2)", "F.gelu(y) * y"),
]


def biases(folder: Path, layer: str, x: str, read: str) -> list[bool]:
    """Return of each convolution whether torch adds its bias."""
    forward = f"(lambda y: ({read}))(self.c(x))"
    plan = plan_in(folder, forward, layers=f"self.c = {layer}", x=x)
    library = [
        stage for stage in plan.stages if isinstance(stage, Library) and "conv" in stage.aten
    ]
    return [stage.arguments["bias"] is not None for stage in library]


@pytest.mark.parametrize(("layer", "x", "read"), CONVOLUTIONS)
def test_it_is_torchs_where_anything_else_reads_the_result(
    layer: str, x: str, read: str, tmp_path: Path
) -> None:
    assert biases(tmp_path, layer, x, read) == [False]
    assert biases(tmp_path, layer, x, "y") == [True]
    assert biases(tmp_path, layer, x, f"{read} + torch.linalg.matrix_norm(y).amax()") == [True]


@pytest.mark.parametrize("backend", ["cuda", "cpp"])
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_results(
    convolution: tuple[str, str, str], backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layer, x, read = convolution
    forward = f"(lambda y: ({read}))(self.c(x))"
    problem = problem_of(tmp_path, forward, layers=f"self.c = {layer}", x=x)
    Planned(problem, backend, compiled_folder).check()
