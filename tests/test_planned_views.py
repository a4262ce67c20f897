"""Views that merge dimensions between operators: no value comes to memory for one."""

import re
from pathlib import Path

import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend

IMAGE = {"x": "torch.randn(3, 8, 6, 5)"}


def test_other_sizes_than_the_main_ones(tmp_path: Path, compiled_folder: Path) -> None:
    forward = "torch.softmax(x.clamp(0, 1).view(x.shape[0], x.shape[1], -1), 2).view(x.shape)"
    planned = Planned(problem_of(tmp_path, forward, **IMAGE), "cpp", compiled_folder)
    for shape in [(3, 8, 6, 5), (2, 8, 6, 5), (3, 4, 6, 5), (3, 8, 6, 7), (1, 1, 1, 1)]:
        planned.check(torch.randn(shape))


@pytest.mark.parametrize(
    ("of", "copies"), [("x.transpose(1, 3)", 1), ("x.view(24, 30)", 0), ("x.transpose(1, 1)", 0)]
)
def test_what_several_kernels_read_out_of_order_is_put_in_order_once(
    of: str, copies: int, tmp_path: Path, compiled_folder: Path
) -> None:
    forward = f"(lambda t: (t.sum(1), torch.exp(t)))({of})"
    planned = Planned(problem_of(tmp_path, forward, **IMAGE), "cpp", compiled_folder)
    planned.check()
    assert len(planned.launched) == 2
    forward = planned.text.partition("def forward")[2]
    assert forward.count(".contiguous()") == copies


@pytest.mark.parametrize(
    "forward",
    [
        # Kernels write in order, where the Model's value lies otherwise.
        "torch.relu(x.transpose(1, 3)).transpose(1, 3).view(-1) + 1",
        "torch.as_strided(torch.relu(x.mT), (4, 6), (3, 2), 1) + 1",
        "torch.relu(x.mT).resize_(6, 120) + 1",
        "torch.relu(x.mT).mT.view(torch.int32).view(torch.float32) * 2",
        # Backends of torch differ in how results lie.
        "F.scaled_dot_product_attention(x.relu(), x, x).transpose(1, 2).reshape(3, 6, -1) * 2",
        "F.conv2d(torch.relu(x.permute(0, 2, 1, 3)), w).view(3, -1) + 1",
        # Views that torch makes where memory repeats, or in another order.
        "(x.roll(1, 1) + x.flip(2), x.unfold(3, 3, 2).sum(-1), x.diagonal(0, 2, 3) * 2)",
        "(x[..., None].expand(-1, -1, -1, -1, 2).flatten(3) * 2, x.rot90(1, (2, 3)) + 1)",
        # A result that is computed of repeats has memory of its own.
        "(x.amax(3, keepdim=True).expand_as(x) * 2).view(-1) + 1",
        "torch.as_strided(x[..., :1].expand_as(x) * 2, (4, 6), (3, 2), 1) + 1",
    ],
)
def test_a_view_of_what_lies_otherwise_than_the_models(
    forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, **IMAGE, w="torch.randn(4, 6, 1, 1)")
    planned = Planned(problem, "cpp", compiled_folder)
    x, w = torch.randn(3, 8, 6, 5), torch.randn(4, 6, 1, 1)
    torch.testing.assert_close(planned.run(x, w), planned.models()[0](x, w))


@pytest.mark.parametrize(
    "forward",
    [
        "x.contiguous().view(-1).cumsum(0)",
        "x.contiguous().view(x.size(0), -1).softmax(-1)",
        "x.contiguous().view(x.size(0), 2, -1).transpose(0, 1) * 2",
    ],
)
def test_a_contiguous_copy_is_viewed_however_an_input_lies(
    forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    """In a trace the input is its own contiguous copy."""
    planned = Planned(problem_of(tmp_path, forward, **IMAGE), "cpp", compiled_folder)
    for x in torch.randn(3, 8, 6, 5), torch.randn(3, 8, 5, 6).mT, torch.randn(1).expand(3, 8, 6, 5):
        planned.check(x)


@pytest.mark.parametrize("of", ["x.contiguous()", "x.contiguous()[1:].flatten(1)", "x"])
def test_the_memory_of_an_input_that_lies_otherwise_is_not_read(
    of: str, tmp_path: Path, compiled_folder: Path
) -> None:
    """In a trace the input is its own contiguous copy, whose memory may be another one."""
    forward = f"torch.as_strided({of}, (4, 6), (30, 2)) * 2"
    planned = Planned(problem_of(tmp_path, forward, **IMAGE), "cpp", compiled_folder)
    planned.check()
    planned.check(torch.randn(5, 8, 6, 5)[1:])
    for x in torch.randn(3, 8, 6, 10)[..., ::2], torch.randn(1).expand(3, 8, 6, 5):
        with pytest.raises(ValueError, match="strides of x: the file is for"):
            planned.run(x)


def test_the_memory_of_what_a_kernel_writes_is_read_however_an_input_lies(
    tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, "torch.as_strided(x.relu(), (4, 6), (30, 2)) * 2", **IMAGE)
    Planned(problem, "cpp", compiled_folder).check(torch.randn(3, 8, 6, 10)[..., ::2])


@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_a_parameter_is_read_as_it_is_where_the_model_reads_a_view(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layers = "self.norm = nn.BatchNorm2d(8)\nself.w = nn.Parameter(torch.randn(8))"
    forward = "self.norm(x).relu(), x * self.w.view(-1, 1, 1), self.w.view(-1, 1)"
    problem = problem_of(tmp_path, forward, layers=layers, **IMAGE)
    planned = Planned(problem, backend, compiled_folder)
    models = planned.models()
    assert planned.text.count("self.w.view(") == 1
    for model in models:  # memory that is not contiguous
        model.norm.running_mean = torch.zeros(16)[::2]
        model.w.data = torch.arange(16.0)[::2]
    for shape in [(3, 8, 6, 5), (2, 8, 3, 8)]:
        x = torch.randn(shape)
        torch.testing.assert_close(planned.run(x, model=models[1]), models[0](x))
    torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())


@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_a_parameter_that_is_read_as_it_is_fits_its_dimension_alone(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layers = "self.w = nn.Parameter(torch.randn(8))"
    problem = problem_of(tmp_path, "x * self.w.view(-1, 1, 1)", layers=layers, **IMAGE)
    planned = Planned(problem, backend, compiled_folder)
    stage, w = planned.space["_mul"], torch.randn(8)
    with planned.streaming():
        for shape in [(3, 8, 6, 5), (3, 1, 6, 8), (8, 6, 5), (6, 5), (1, 8, 0, 5)]:
            x = torch.randn(shape)
            torch.testing.assert_close(stage(x, w), x * w.view(-1, 1, 1))
        with pytest.raises(RuntimeError, match="broadcast"):
            stage(torch.randn(3, 6, 5, 8), w)


@pytest.mark.parametrize("backend", ["cuda", "cpp"])
@pytest.mark.parametrize(
    "after",
    [
        "self.norm.running_mean * 2",
        "x * self.norm.running_mean.view(-1, 1, 1)",
        "(x - self.norm.running_var[:, None, None]).sum(1)",
    ],
)
def test_a_buffer_that_a_kernel_changes_is_read_after_that(
    after: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layers, x = "self.norm = nn.BatchNorm2d(8)", "torch.randn(3, 8, 6, 8)"
    problem = problem_of(tmp_path, f"self.norm(x), {after}", layers=layers, x=x)
    Planned(problem, backend, compiled_folder).check()


@pytest.mark.parametrize(
    ("forward", "repetitions"),
    [
        ("x * (x.mean(-1, keepdim=True).expand(x.shape) / 4).exp() + 1", 0),
        ("(w.expand_as(x) * 2).relu() + x", 0),
        ("x - x.amax(1, keepdim=True).broadcast_to(x.size(0), 8, 6, 5).neg()", 0),
        ("(w.expand(3, 8, 6, 5) * 2 - 1, x * 2)", 1),
    ],
)
def test_what_is_repeated_is_computed_once_before_that(
    forward: str, repetitions: int, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, **IMAGE, w="torch.randn(8, 1, 1)")
    planned = Planned(problem, "cpp", compiled_folder)
    found = planned.text.partition("def forward")[2]
    assert len(re.findall(r"\b(expand|expand_as|broadcast_to)\b", found)) == repetitions
    planned.check(*planned.inputs())
    planned.check(torch.randn(3, 8, 5, 6).mT, torch.randn(16, 1, 1)[::2])
