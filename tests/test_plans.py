"""Plans of small Models in KernelBench's manner: their stages, and what holds of every plan."""

import textwrap

import msgspec
import pytest
from planned_models import plan_of

from kernelgen.engines.map import Map
from kernelgen.engines.naming import without_overload
from kernelgen.engines.pool.record import Pool
from kernelgen.engines.product.record import Product
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.scan import Scan
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Library, Stage, StepValue, reads, writes
from kernelgen.planning.cost import costs
from kernelgen.planning.plan import Plan


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A Model.

    Attributes:
        layers, forward: bodies of its methods.
        inputs: forward's parameters and their shapes, such as `x=4,8`.
        stages: what its plan is to be, kind and kernel.
    """

    forward: str
    layers: str = ""
    inputs: str = "x=4,8"
    stages: str


MODELS = {
    "pointwise": Sample(forward="return F.gelu(x * 2 + 1).clamp(min=0.1)", stages="map"),
    "constants_alone": Sample(
        forward="""
        zeros = torch.zeros_like(x)
        return torch.cat((zeros + 1, torch.where(x > 1, x, zeros)), 1), torch.ones_like(x).sum(1)
        """,
        stages="library:zeros_like library:add map library:cat library:ones_like reduce:sum",
    ),
    "conv_bias_relu": Sample(
        layers="self.conv = nn.Conv2d(3, 8, 3); self.bias = nn.Parameter(torch.zeros(8, 1, 1))",
        forward="return torch.relu(self.conv(x) + self.bias)",
        inputs="x=2,3,9,9",
        stages="library:conv2d view:view map",
    ),
    "linear_groupnorm_hardtanh": Sample(
        layers="self.linear = nn.Linear(8, 12); self.norm = nn.GroupNorm(3, 12)",
        forward="return F.hardtanh(self.norm(self.linear(x)))",
        stages="library:linear segment:mean,variance map",
    ),
    "matmul_pool_sum": Sample(
        layers="self.linear = nn.Linear(8, 12); self.pool = nn.MaxPool1d(2)",
        forward="return self.pool(self.linear(x).unsqueeze(1)).squeeze(1).sum(dim=1) * 0.5",
        stages="library:linear view:unsqueeze pool:max view:squeeze reduce:sum",
    ),
    "softmax_by_hand": Sample(
        forward="""
            e = torch.exp(x - x.max(dim=1, keepdim=True).values)
            return e / e.sum(dim=1, keepdim=True)
        """,
        stages="reduce:max reduce:sum map",
    ),
    # The sum of the outputs so far is written where three of them would be read again.
    "residuals": Sample(
        layers="self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))",
        forward="""
            for layer in self.layers:
                x = x + layer(torch.softmax(x, 1))
            return x
        """,
        stages="segment:max,sumexp library:linear reduce:max,sumexp map library:linear map "
        "reduce:max,sumexp map library:linear reduce:max,sumexp map library:linear map",
    ),
    "mse": Sample(
        forward="return torch.mean((x - y) ** 2)", inputs="x=4,8 y=4,8", stages="reduce:mean"
    ),
    "hinge": Sample(
        forward="return torch.mean(torch.clamp(1 - x * y, min=0))",
        inputs="x=4,8 y=4,8",
        stages="reduce:mean",
    ),
    "attention": Sample(
        forward="""
            scores = q @ k.transpose(-2, -1) * 0.25
            return torch.softmax(scores, dim=-1) @ v
        """,
        inputs="q=2,5,8 k=2,6,8 v=2,6,4",
        stages="view:transpose library:matmul reduce:max,sumexp map library:matmul",
    ),
    "several_outputs": Sample(forward="return x.relu(), x * 2, x.sum(1)", stages="map reduce:sum"),
    "two_reductions_in_one_pass": Sample(
        forward="return x.mean(1) + x.amax(1)", stages="reduce:mean,max"
    ),
    "what_torch_reads_of_one_pass": Sample(
        forward="return torch.stack((x.mean(1), x.amax(1), x.sum(0)[:4]))",
        inputs="x=4,8",
        stages="reduce:mean,max reduce:sum view:slice library:stack",
    ),
    "results_of_a_pass_that_another_pass_reads": Sample(
        forward="""
            s = x.exp().sum(1, keepdim=True)
            return (x / s).sum(), (x / s).square().sum(), s.log(), s * 2
        """,
        stages="reduce:sum reduce:sum,sum map",
    ),
    "running_mean": Sample(
        layers="self.register_buffer('mean', torch.zeros(8))",
        forward="self.mean.mul_(0.9).add_(0.1 * x.mean(0))\nreturn x - self.mean",
        stages="reduce:mean map",
    ),
    "reversed_cumsum": Sample(
        forward="return torch.cumsum(x.flip(1), 1).flip(1)", stages="scan:sum reverse"
    ),
    "cumsum_reversed_twice": Sample(
        forward="return x.flip(1).flip(1).cumsum(1).flip(1).flip(1)", stages="scan:sum"
    ),
    "other_dimensions_are_no_reversed_cumsum": Sample(
        forward="""
            a, b = x.flip(0).cumsum(1).flip(0), x.flip(1).cumsum(1).flip(0)
            return a, b, x.flip(0, 1).cumsum(1).flip(1)
        """,
        stages="library:flip scan:sum library:flip library:flip scan:sum library:flip library:flip"
        " scan:sum library:flip",
    ),
    "exclusive_cumsum": Sample(
        forward="return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)",
        stages="scan:sum exclusive",
    ),
    "other_ends_are_no_exclusive_cumsum": Sample(
        forward="""
            ones = torch.cat((torch.ones_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)
            rest = torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, 1:], 1)), 1)
            less = torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-2], 1)), 1)
            return ones, rest, less
        """,
        stages="view:slice scan:sum view:slice library:ones_like library:cat view:slice scan:sum "
        "view:slice library:zeros_like library:cat view:slice scan:sum view:slice "
        "library:zeros_like library:cat",
    ),
    "log_softmax_along_other_classes": Sample(
        forward="return F.nll_loss(torch.log_softmax(x, 0), y[:, 0].long(), reduction='none')",
        inputs="x=9,20 y=9,20",
        stages="view:select reduce:max,sumexp map reduce:pick",
    ),
    "losses_that_no_row_has": Sample(
        forward="""
            weighted = F.nll_loss(x, y.argmax(1), weight=torch.ones_like(x[0]))
            swapped = F.triplet_margin_loss(x, y, x * 2, swap=True)
            return weighted, swapped, F.cross_entropy(x, x.exp())
        """,
        inputs="x=9,20 y=9,20",
        stages="reduce:argmax view:select library:ones_like library:nll_loss_nd map "
        "library:triplet_margin_loss map library:cross_entropy_loss",
    ),
    "norm_of_all": Sample(forward="return x / torch.norm(x, p='fro')", stages="reduce:sum map"),
    "scan_of_whole_numbers": Sample(
        forward="return torch.cumsum(x.long(), 1)", stages="map library:cumsum"
    ),
    "other_pools": Sample(
        forward="""
            taken = F.max_pool1d(x, 3, return_indices=True), F.adaptive_avg_pool1d(x, 2)
            return *taken, F.max_pool1d(x, 3073)
        """,
        inputs="x=2,4000",
        stages="library:max_pool1d_with_indices library:adaptive_avg_pool1d library:max_pool1d",
    ),
    "adaptive_means_of_all": Sample(
        forward="""
            one, other = F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (1, 1))
            return one, other, F.adaptive_avg_pool3d(x, 1)
        """,
        inputs="x=2,3,4,5",
        stages="reduce:mean,mean reduce:mean",
    ),
    "argmax_of_absolutes": Sample(forward="return x.abs().argmax(1)", stages="reduce:argmax"),
    "pool_between": Sample(
        forward="return torch.tanh(F.avg_pool2d(torch.relu(x), 2)).mean((2, 3))",
        inputs="x=2,3,8,8",
        stages="pool:mean reduce:mean",
    ),
    "reused_value": Sample(
        layers="self.linear = nn.Linear(8, 8)",
        forward="y = self.linear(x); return y * torch.sigmoid(y) + x",
        stages="library:linear map",
    ),
    "dropout_of_none": Sample(
        layers="self.linear = nn.Linear(8, 8); self.drop = nn.Dropout(0.0)",
        forward="return torch.relu(self.linear(self.drop(self.linear(x))) + self.drop(x))",
        stages="library:linear library:linear map",
    ),
    "dropout_of_some": Sample(
        forward="return torch.relu(F.dropout(x * 2, 0.1)) + F.dropout(x, 0.1, training=False)",
        stages="map library:dropout map",
    ),
    "nothing_known": Sample(
        forward="return torch.linalg.inv(x)", inputs="x=4,4", stages="library:linalg_inv"
    ),
}


def source_of(sample: Sample) -> str:
    given = [one.split("=") for one in sample.inputs.split()]
    names = ", ".join(name for name, _ in given)
    forward = textwrap.indent(textwrap.dedent(sample.forward).strip(), " " * 8)
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {sample.layers}

    def forward(self, {names}):
{forward}

def get_inputs():
    return [{", ".join(f"torch.rand({shape})" for _, shape in given)}]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", params=MODELS)
def sample(request: pytest.FixtureRequest) -> tuple[Sample, Plan]:
    from kernelgen.tracing.trace import trace

    found = MODELS[request.param]
    return found, plan_of(trace(source_of(found)))


def listing(plan: Plan) -> str:
    """Return the stages as kind:what, in order."""
    return " ".join(map(_named, plan.stages))


def _named(stage: Stage) -> str:  # noqa: PLR0911 - a kind a line
    match stage:
        case Map():
            return "map"
        case Reduce():
            return f"reduce:{','.join(one.kind for one in stage.accumulators)}"
        case Segment():
            return f"segment:{','.join(one.kind for one in stage.accumulators)}"
        case Scan():
            ways = "".join(f" {w}" for w in ("reverse", "exclusive") if getattr(stage, w))
            return f"scan:{stage.kind}{ways}"
        case Pool():
            return f"pool:{stage.window.kind}"
        case Product():
            return f"product:{stage.aten}"
        case Library():
            return f"{'view' if stage.view else 'library'}:{without_overload(stage.aten)}"
    raise AssertionError(stage)


def test_stages_are_as_few_as_they_can_be(sample: tuple[Sample, Plan]) -> None:
    found, plan = sample

    assert listing(plan) == found.stages


def test_values_are_made_before_they_are_read(sample: tuple[Sample, Plan]) -> None:
    _, plan = sample
    known = {source.name for source in plan.sources}
    for stage in plan.stages:
        assert {*reads(stage)} <= known
        made = {name for name in writes(stage) if name != "_"}
        assert not made & known, "a value is made once"
        known |= made
    assert {*plan.outputs, *plan.updates.values()} <= known


def test_no_stage_and_no_source_is_for_nothing(sample: tuple[Sample, Plan]) -> None:
    _, plan = sample
    wanted = {*plan.outputs, *plan.updates.values()}
    for stage in reversed(plan.stages):
        assert wanted.intersection(writes(stage)), f"{_named(stage)} is read by nobody"
        wanted.update(reads(stage))
    assert {source.name for source in plan.sources} <= wanted


def test_steps_read_what_stands_before_them(sample: tuple[Sample, Plan]) -> None:
    _, plan = sample
    for stage in plan.stages:
        match stage:
            case Map():
                known = names(stage.operands)
                check_steps(stage.steps, known)
                assert all(is_known(result.of, known) for result in stage.results)
            case Reduce():
                before = names(stage.operands)
                check_steps(stage.steps, before)
                assert all(is_known(one.of, before) for one in stage.accumulators)
                after = names(stage.beside) | {one.name for one in stage.accumulators}
                check_steps(stage.epilogue, after)
                assert all(is_known(result.of, after) for result in stage.results)
            case Scan() | Pool():
                known = names(stage.operands)
                check_steps(stage.steps, known)
                of = stage.of if isinstance(stage, Scan) else stage.window.of
                assert is_known(of, known)


def test_what_a_plan_moves_is_at_least_its_ends(sample: tuple[Sample, Plan]) -> None:
    _, plan = sample
    cost = costs(plan)

    assert len(cost.stages) == len(plan.stages)
    assert sum(one.moved_bytes for one in cost.stages) >= cost.minimal_bytes > 0


def test_a_value_that_is_read_often_is_looked_at_once() -> None:
    from kernelgen.tracing.trace import trace

    chain = Sample(
        forward="for _ in range(60): x = x * torch.sigmoid(x) + x\nreturn x / x.sum()",
        stages="reduce:sum map",
    )
    assert listing(plan_of(trace(source_of(chain)))) == chain.stages


def test_plans_are_the_same_again() -> None:
    from kernelgen.tracing.trace import trace

    graph = trace(source_of(MODELS["softmax_by_hand"]))

    assert plan_of(graph) == plan_of(graph)


def names(operands: tuple[msgspec.Struct, ...]) -> set[str]:
    return {operand.name for operand in operands}  # type: ignore[attr-defined]


def is_known(value: StepValue, known: set[str]) -> bool:
    return not isinstance(value, str) or value in known


def check_steps(steps: tuple[msgspec.Struct, ...], known: set[str]) -> None:
    for step in steps:
        values = step.arguments.values()  # type: ignore[attr-defined]
        assert all(is_known(value, known) for value in values)
        known.add(step.name)  # type: ignore[attr-defined]
