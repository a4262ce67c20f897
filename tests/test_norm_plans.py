"""Norms and softmax as stages: how many there are, and that they compute what torch does."""

from pathlib import Path
from typing import Any

import pytest
from planned_models import plan_in, plan_of, problem_of
from run_plan import run_plan

from kernelgen.engines.map import Map
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Library
from kernelgen.planning.fusion import with_engines
from kernelgen.planning.plan import Plan
from kernelgen.planning.planner import Choices, plan_of_simple, simplified
from kernelgen.tracing.trace import trace

GN = "self.n = nn.GroupNorm(2, 8)"
IMAGE = "torch.randn(3, 8, 5, 4)"


def planned(
    folder: Path, forward: str, layers: str = "pass", *, eval_mode: bool = False, **inputs: str
) -> Plan:
    """Return a plan, having compared what it does in float64 with Model, twice in a row."""
    import torch

    problem = problem_of(folder, forward, layers=layers, **inputs)
    source = problem.module_source
    assert source is not None
    # Taken apart, as those are that a kernel's values lead to.
    plan = plan_of_simple(simplified(trace(source, eval_mode=eval_mode), Choices(frozenset(), {})))
    space: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "<reference>", "exec"), space)
    models = [space["Model"]().double().train(not eval_mode) for _ in range(2)]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in models[0].state_dict().items():
            if value.is_floating_point():
                value.add_(torch.rand(value.shape, generator=generator).double())
            models[1].state_dict()[name].copy_(value)
        for _ in range(2):
            given = [x.double() for x in space["get_inputs"]()]
            wanted = models[0](*given)
            (found,) = run_plan(plan, models[1], *given)
            torch.testing.assert_close(found, wanted)
            for name, value in models[0].state_dict().items():
                torch.testing.assert_close(models[1].state_dict()[name], value)
    return plan


def kernels(plan: Plan) -> list[Map | Reduce]:
    """Return the stages that are kernels; all others are views, or count batches."""
    assert all(s.view for s in plan.stages if isinstance(s, Library) and s.aten != "add.Tensor")
    return [stage for stage in plan.stages if isinstance(stage, Map | Reduce)]


@pytest.mark.parametrize(
    ("forward", "layers", "x"),
    [
        ("self.n(x)", GN, IMAGE),
        ("self.n(x)", "self.n = nn.GroupNorm(4, 8, affine=False)", "torch.randn(3, 8)"),
        ("torch.tanh(F.silu(self.n(torch.relu(x * 2))) + x)", GN, IMAGE),
        ("self.n(x + self.b) * self.b", GN + "\nself.b = nn.Parameter(torch.ones(8, 1, 1))", IMAGE),
        ("self.n(x.expand(3, 8, 5, 4) * y)", GN, "torch.randn(3, 8, 1, 1)"),
        ("self.n(x)", "self.n = nn.InstanceNorm2d(8, affine=True)", IMAGE),
        ("self.n(x)", "self.n = nn.InstanceNorm1d(8)", "torch.randn(2, 8, 7)"),
        ("self.n(x)", "self.n = nn.LayerNorm((5, 4))", IMAGE),
        ("self.n(x)", "self.n = nn.LayerNorm(4, bias=False)", IMAGE),
        ("self.n(x)", "self.n = nn.RMSNorm((5, 4), eps=1e-6)", IMAGE),
        ("self.n(x)", "self.n = nn.RMSNorm(4, eps=1e-3, elementwise_affine=False)", IMAGE),
        ("F.batch_norm(x, None, None, training=True)", "pass", IMAGE),
        ("torch.softmax(x, 1)", "pass", IMAGE),
        ("F.relu(torch.log_softmax(x - 1, -1) + x)", "pass", IMAGE),
        ("x - x.mean(dim=(2, 3), keepdim=True).expand(3, 8, 5, 4)", "pass", IMAGE),
        ("F.normalize(x)", "pass", IMAGE),
        ("(x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)", "pass", IMAGE),
        ("x / x.square().sum(1).sqrt().unsqueeze(1).expand_as(x)", "pass", IMAGE),
    ],
)
def test_a_reduction_and_a_map(forward: str, layers: str, x: str, tmp_path: Path) -> None:
    if "* y" in forward:
        plan = planned(tmp_path, forward, layers, x=x, y=IMAGE)
    else:
        plan = planned(tmp_path, forward, layers, x=x)
    first, second = kernels(plan)
    assert isinstance(first, Reduce)
    assert isinstance(second, Map)


@pytest.mark.parametrize(
    ("forward", "layers", "kind", "by"),
    [
        ("self.n(x)", GN, "groups", "n.num_groups"),
        ("F.group_norm(x, 4)", "pass", "groups", 4),
        ("F.silu(self.n(x)) + x", GN, "groups", "n.num_groups"),
        ("self.n(F.conv2d(x, self.w))", f"{GN}\nself.w = nn.Parameter(torch.ones(8, 8, 1, 1))",
         "groups", "n.num_groups"),
        ("self.n(x)", "self.n = nn.InstanceNorm2d(8, affine=True)", "channels", 2),
        ("self.n(x[0])", "self.n = nn.InstanceNorm2d(8)", "channels", 2),
        ("self.n(x)", "self.n = nn.LayerNorm((5, 4))", "rows", "n.normalized_shape"),
        ("F.rms_norm(x, (4,))", "pass", "rows", (4,)),
        ("torch.log_softmax(x, -1)", "pass", "dim", -1),
        ("x / x.norm(dim=3, keepdim=True)", "pass", "dim", 3),
        ("x / x.abs().mean(3, keepdim=True)", "pass", "dim", 3),
        # A kernel gathers values that it computes, and a reduction reads no stored softmax.
        ("self.n(x * 2)", GN, "", ""),
        ("torch.softmax(x, 1)", "pass", "", ""),
        ("torch.softmax(x, -1).mean(1)", "pass", "", ""),
        ("F.nll_loss(torch.log_softmax(x.flatten(1), -1), x[:, 0, 0, 0].long())", "pass", "", ""),
        ("F.batch_norm(x, None, None, training=True)", "pass", "", ""),
    ],
)  # fmt: skip
def test_which_norms_stay_whole(
    forward: str, layers: str, kind: str, by: object, tmp_path: Path
) -> None:
    source = problem_of(tmp_path, forward, layers=layers, x=IMAGE).module_source
    assert source is not None
    stages = plan_of(trace(source)).stages
    found = [s.extent for s in stages if isinstance(s, Segment) and s.extent is not None]
    assert [(one.kind, one.by) for one in found] == ([(kind, by)] if kind else [])


@pytest.mark.parametrize(
    ("forward", "shape"), [("self.n(x[0])", (8, 5, 4)), ("self.n(x[0][None])", (1, 8, 5, 4))]
)
def test_an_image_is_no_batch_of_one(forward: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    layers = "self.n = nn.InstanceNorm2d(8)"
    stages = plan_in(tmp_path, f"{forward} * 2", layers=layers, x=IMAGE).stages
    (segment,) = (one for one in stages if isinstance(one, Segment))
    assert segment.shape == shape


@pytest.mark.parametrize(
    ("after", "stages"),
    [
        ("self.n(x).flatten(2) * 2 + 1", [Segment]),
        ("torch.tanh(self.n(x).view(3, -1))", [Segment]),
        ("F.instance_norm(x[:, :1, :1]).squeeze(1).squeeze(1) * x[:, 0, 0]", [Segment]),
        ("self.n(x).flatten(2) * x.flatten(2)", [Segment, Map]),  # as x is read in other parts
    ],
)
def test_a_map_behind_a_merge_is_done_with_the_norm(
    after: str, stages: list[type], tmp_path: Path
) -> None:
    plan = plan_in(tmp_path, after, layers="self.n = nn.InstanceNorm2d(8)", x=IMAGE)
    found = with_engines(plan, None).stages
    assert [type(s) for s in found if not (isinstance(s, Library) and s.view)] == stages


def test_softmax_takes_one_reduction(tmp_path: Path) -> None:
    first, _ = kernels(planned(tmp_path, "torch.softmax(x, 1)", x=IMAGE))
    assert isinstance(first, Reduce)
    assert [a.kind for a in first.accumulators] == ["max", "sumexp"]


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        ("nn.BatchNorm2d(8)", IMAGE),
        ("nn.BatchNorm1d(8, affine=False, momentum=0.3)", "torch.randn(6, 8)"),
        ("nn.BatchNorm3d(8, eps=1e-2)", "torch.randn(3, 8, 2, 3, 2)"),
    ],
)
def test_batch_norm_leaves_running_statistics_of_the_same_reduction(
    layer: str, x: str, tmp_path: Path
) -> None:
    plan = planned(tmp_path, "torch.relu(self.n(x))", f"self.n = {layer}", x=x)
    first, second = kernels(plan)
    assert isinstance(first, Reduce)
    assert isinstance(second, Map)
    found = [(a.kind, a.correction) for a in first.accumulators]
    assert found == [("mean", 0.0), ("variance", 0.0), ("variance", 1.0)]
    assert plan.updates.keys() == {"n.running_mean", "n.running_var", "n.num_batches_tracked"}


def test_batch_norm_called_twice_counts_both(tmp_path: Path) -> None:
    forward = "self.n(torch.sin(self.n(x)))"
    plan = planned(tmp_path, forward, "self.n = nn.BatchNorm2d(8)", x=IMAGE)
    assert isinstance(kernels(plan)[-1], Map)


def test_two_batch_norms_in_a_row(tmp_path: Path) -> None:
    layers = "self.n = nn.BatchNorm2d(8)\nself.m = nn.BatchNorm2d(8)"
    plan = planned(tmp_path, "self.m(torch.sin(self.n(x)))", layers, x=IMAGE)
    assert [type(stage) for stage in kernels(plan)] == [Reduce, Reduce, Map]


@pytest.mark.parametrize(
    "layer", ["nn.BatchNorm2d(8)", "nn.InstanceNorm2d(8, track_running_stats=True, affine=True)"]
)
def test_in_eval_mode_it_is_a_map(layer: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, "F.gelu(self.n(x))", f"self.n = {layer}", x=IMAGE, eval_mode=True)
    (only,) = kernels(plan)
    assert isinstance(only, Map)
    assert not plan.updates


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        ("nn.InstanceNorm2d(8, affine=True, track_running_stats=True)", IMAGE),
        ("nn.InstanceNorm1d(8, momentum=0.3, track_running_stats=True)", "torch.randn(2, 8, 7)"),
        ("nn.InstanceNorm3d(8, track_running_stats=True)", "torch.randn(1, 8, 2, 3, 2)"),
    ],
)
def test_instance_norm_leaves_the_samples_mean_in_running_statistics(
    layer: str, x: str, tmp_path: Path
) -> None:
    plan = planned(tmp_path, "torch.relu(self.n(x))", f"self.n = {layer}", x=x)
    first, *others = kernels(plan)
    assert isinstance(first, Reduce)
    assert [(a.kind, a.correction) for a in first.accumulators] == [
        ("mean", 0.0),
        ("variance", 0.0),
        ("variance", 1.0),
    ]
    assert sorted(type(stage).__name__ for stage in others) == ["Map", "Reduce"]
    (of_samples,) = (stage for stage in others if isinstance(stage, Reduce))
    assert {a.fewest for a in of_samples.accumulators} == {1}  # none leaves no number
    assert plan.updates.keys() == {"n.running_mean", "n.running_var"}


def test_instance_norm_called_twice_counts_both(tmp_path: Path) -> None:
    layers = "self.n = nn.InstanceNorm2d(8, track_running_stats=True)"
    plan = planned(tmp_path, "self.n(torch.sin(self.n(x)))", layers, x=IMAGE)
    assert isinstance(kernels(plan)[0], Reduce)


def test_groups_of_two_kinds(tmp_path: Path) -> None:
    layers = GN + "\nself.m = nn.GroupNorm(4, 8)"
    plan = planned(tmp_path, "self.m(torch.relu(self.n(x)) + x) * x", layers, x=IMAGE)
    assert [type(stage) for stage in kernels(plan)] == [Reduce, Map, Reduce, Map]


def test_an_rms_norm_without_an_eps_takes_that_of_float32(tmp_path: Path) -> None:
    (first,) = plan_in(tmp_path, "self.n(x)", layers="self.n = nn.RMSNorm(4)", x=IMAGE).stages
    assert isinstance(first, Segment)
    assert 2.0**-23 in first.epilogue[0].arguments.values()


@pytest.mark.parametrize(
    "after",
    [
        "mean(dim=(1, 2, 3))",
        "mean(dim=(2, 3))",
        "mean(dim=(-1, -2), keepdim=True)",
        "amax(dim=1)",
        "amax(dim=(0, 1), keepdim=True)",
        "logsumexp(dim=1, keepdim=True)",
        "mean(dim=(2, 3)) * self.b + 1",
    ],
)
def test_a_reduction_after_groups_reads_no_norm_from_memory(after: str, tmp_path: Path) -> None:
    layers = GN + "\nself.b = nn.Parameter(torch.ones(8))"
    plan = planned(tmp_path, f"torch.tanh(self.n(x)).{after}", layers, x=IMAGE)
    assert [type(stage) for stage in kernels(plan)] == [Reduce, Reduce]


def test_doubles_stay_in_torch(tmp_path: Path) -> None:
    (only,) = plan_in(tmp_path, "torch.softmax(x, 1)", x="torch.ones(3, 4).double()").stages
    assert isinstance(only, Library)


def test_halves_are_read_as_they_are_in_memory(tmp_path: Path) -> None:
    stages = plan_in(tmp_path, "torch.softmax(x, 1)", x="torch.ones(3, 4).half()").stages
    first, second = stages
    assert isinstance(first, Segment)
    assert [operand.type.dtype for operand in first.operands] == ["float16"]
    assert isinstance(second, Map)
    assert not second.steps
