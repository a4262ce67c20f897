"""Values that forward leaves in buffers, written there by the stages that make them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend
from kernelgen.rendering.planned import render_planned
from kernelgen.tracing.capture import NoGraphError

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
X = "torch.randn(4, 6, 8)"
NORM = "self.norm = nn.BatchNorm1d(6)\n"
BUFFERS = {
    "mean": "torch.linspace(0.0, 1.0, 6)",
    "state": "torch.ones(4, 6, 8)",
    "tall": "torch.ones(4, 8, 6).mT",
    "calls": "torch.tensor(3)",
    "rows": "torch.ones(2, 6)",
    "ones": "torch.ones(6)",
    "ranks": "torch.arange(36).view(6, 6)",
    "one": "torch.ones(1)",
    "z": "torch.tensor(1.0)",
}
LAYERS = NORM + "\n".join(f"self.register_buffer({n!r}, {t})" for n, t in BUFFERS.items())
MOVING = "self.mean.mul_(0.9).add_(0.1 * x.mean((0, 2)))"


def checked(folder: Path, compiled: Path, backend: Backend, **texts: Any) -> Planned:
    """Compare results and buffers with a Model's over three calls, on inputs that change."""
    texts = {"layers": LAYERS, "x": X, **texts}
    planned = Planned(problem_of(folder, texts.pop("forward"), **texts), backend, compiled)
    models = planned.models()
    same(planned, models)
    return planned


def same(planned: Planned, models: tuple[Any, Any]) -> None:
    reference, candidate = models
    for _ in range(3):
        x = torch.randn(4, 6, 8)
        torch.testing.assert_close(planned.run(x, model=candidate), reference(x))
        torch.testing.assert_close(candidate.state_dict(), reference.state_dict())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("before", "forward", "launches", "copies"),
    [
        ("", "self.norm(x)", 2, 0),
        ("", "(self.norm(x), self.norm.running_var)", 2, 1),
        (MOVING, "x - self.mean.view(-1, 1)", 2, 0),
        ("self.state.mul_(0.5).add_(x)", "self.state.relu()", 1, 0),
        ("self.state.copy_(x.exp() + self.state)", "x + 1", 1, 0),
        ("self.state.copy_(x.exp() + self.state)", "x.sum()", 2, 0),
        # An operator of torch's writes where it reads: what the next one reads is no buffer yet.
        ("self.calls += 2", "x.relu()", 1, 0),
        ("self.calls += 2\nself.calls *= 3", "x.relu()", 1, 1),
    ],
)
def test_no_value_is_copied(  # noqa: PLR0913, PLR0917 - a row of the table
    before: str,
    forward: str,
    launches: int,
    copies: int,
    backend: Backend,
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    planned = checked(tmp_path, compiled_folder, backend, before=before, forward=forward)
    text = planned.text
    assert text.count(".copy_(") - text.count("].copy_(out") == copies
    assert len(planned.launched) == launches


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("before", "forward", "sums"),
    [
        ("", "self.other(self.norm(x))", "_foreach_add_.Scalar([norm.num_batches_tracked, other."),
        # A number of another type, a sum of a sum, and one that is read.
        ("self.calls += 1", "self.norm(x)", "_foreach_add_.Scalar([self.calls, norm."),
        ("self.calls += 1.0", "self.norm(x)", "add_.Tensor(norm."),
        ("self.calls += 1\nself.calls += 1", "x * 2", "add.Tensor(self.calls, 1)"),
        ("self.calls += 1", "self.norm(x) * self.calls", "add_.Tensor(norm."),
        ("", "self.norm(self.norm(x))", "add.Tensor(norm.num_batches_tracked, 1)"),
    ],
)
def test_batches_are_counted_together(  # noqa: PLR0913, PLR0917 - a row of the table
    before: str, forward: str, sums: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layers = f"{LAYERS}\nself.other = nn.BatchNorm1d(6)"
    if "1.0" in before:
        layers = layers.replace("torch.tensor(3)", "torch.tensor(3.0)")
    texts = {"layers": layers, "before": before, "forward": forward}
    planned = checked(tmp_path, compiled_folder, backend, **texts)
    assert sums in " ".join(planned.text.split())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("before", "forward"),
    [
        # Read again after it is known what will be left in it.
        (f"old = self.mean.clone()\n{MOVING}", "(x * old.view(-1, 1)).softmax(-1)"),
        ("old = self.mean + 0\nself.mean.mul_(2)", "x.cumsum(2) * old.view(6, 1)"),
        # Returned, or left in another buffer as well.
        (MOVING, "(x, self.mean)"),
        ("new = self.state * 0.5 + x\nself.state.copy_(new)", "(new, x.sum())"),
        ("new = self.state + x\nself.state.copy_(new)\nself.tall.copy_(new)", "x * 2"),
        ("self.calls.add_(1)", "(x, self.calls)"),
        # Read in another way as well.
        ("self.state.copy_(self.state * 0.5 + self.state[0] + x)", "x * 2"),
        ("self.state.copy_(self.state * 0.5 + self.state.unbind(0)[1] + x)", "x * 2"),
        ("self.mean.copy_(self.mean - self.mean[5])", "x * 2"),
        ("self.mean.copy_(self.mean * x.mean((0, 2)) + self.mean[0])", "x * 2"),
        ("self.ranks.copy_(self.ranks + self.ranks.t())", "x * 2"),
        ("self.ranks.copy_(self.ranks + self.ranks[0])", "x * 2"),
        # Read by a view, and made of a sum of the same pass.
        (
            "self.one.copy_(self.one + x.mean())\nself.z.mul_(x.std()).add_(self.one[0])",
            "x * self.z",
        ),
        # Taken for another type of the same: the buffer itself.
        ("self.mean.type_as(x).add_(x.mean((0, 2)))", "x.type_as(x) * 2"),
        # Of what is only as large as a sum of the same pass.
        ("self.mean.copy_(torch.ones_like(x.mean((0, 2))))", "x + 1"),
        ("self.mean.copy_(torch.full_like(x.sum((0, 2)), 2.0) + x.mean((0, 2)))", "x + 1"),
        # Of other elements than those that it is left in, or of another order in memory.
        ("self.state.copy_(self.state.flip(0) + x)", "x * 2"),
        ("self.state.copy_(self.state[:1] + x)", "x * 2"),
        ("self.tall.mul_(0.5).add_(x)", "self.tall.relu()"),
        ("self.mean.copy_(self.mean.sum() * x.sum((0, 2)))", "x * 2"),
    ],
)
def test_who_holds_a_buffer_has_its_values(
    before: str, forward: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    checked(tmp_path, compiled_folder, backend, before=before, forward=forward)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("before", "forward"),
    [
        ("", "(self.norm(x), self.norm.running_mean)"),
        ("y = self.norm(x)\nself.norm.running_mean.mul_(0.5)", "y"),
        ("self.norm.running_mean.mul_(0.5)\nself.norm.running_var.fill_(2.0)", "self.norm(x)"),
        ("y = self.norm(x)", "self.norm(y * self.norm.running_var.view(-1, 1)) + y"),
        ("with torch.no_grad():\n    y = self.norm(x)", "y - self.norm.running_mean.sum()"),
        ("y = self.norm(x)\nself.norm.reset_running_stats()", "y"),
        ("view = self.norm.running_mean.view(-1, 1)\ny = self.norm(x)", "y + view"),
        ("", "F.batch_norm(x, self.rows[0], self.rows[1], training=True) + self.rows.sum()"),
        ("", "F.instance_norm(x, self.mean, self.ones) * self.mean.sum()"),
        (
            (
                "given = {'running_mean': self.mean, 'running_var': self.ones, 'training': True}\n"
                "y = torch.batch_norm(x, None, None, **given, momentum=0.2, eps=1e-5, "
                "cudnn_enabled=False)"
            ),
            "y * self.mean.type_as(other=x).sum()",
        ),
    ],
)
def test_running_statistics_are_read_as_a_norm_left_them(
    before: str, forward: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    checked(tmp_path, compiled_folder, backend, before=before, forward=forward)


@pytest.mark.parametrize("backend", BACKENDS)
def test_running_statistics_that_are_infinite_stay_so(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, "self.norm(x)", layers=NORM, x=X)
    planned = Planned(problem, backend, compiled_folder)
    model, ours = planned.models()
    for x in (torch.full((4, 6, 8), float("inf")), torch.randn(4, 6, 8)):
        model(x)
        with planned.streaming():
            ours(x)
    assert model.norm.running_mean.isposinf().all()
    torch.testing.assert_close(ours.state_dict(), model.state_dict(), equal_nan=True)


CELL = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("h", torch.zeros(6, 8))
        self.register_buffer("g", torch.ones(6, 8))
        self.n = torch.ones(1)

    def forward(self, x):
{lines}
        return x * self.h + self.n
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "lines",
    [
        "self.h = torch.tanh(self.h + x)",
        "self.n = self.n + 1",
        "self.h, self.g = self.g * x, self.h",
        "self.h, self.g = self.g, self.h",
        "self.h = x",
        "self.h = self.h.mT.reshape(6, 8).detach() + x.mean()",
        "self._buffers['h'] = self.h * 2",
    ],
)
def test_what_replaces_a_buffer_of_a_part_is_kept(
    lines: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    top = CELL.format(lines=f"        {lines}")
    layers, forward = "self.cell = Cell()", "self.cell(x[0]) + 1 + x"
    checked(tmp_path, compiled_folder, backend, layers=layers, forward=forward, top=top)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parts", ["self.norm, nn.ReLU()", "self.norm, nn.ReLU(), self.norm"])
def test_a_layer_may_have_several_paths(
    parts: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    layers = f"{NORM}self.line = nn.Linear(8, 8)\nself.both = nn.Sequential(self.line, {parts})"
    checked(tmp_path, compiled_folder, backend, layers=layers, forward="self.both(x)")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "layers",
    [
        "self.held = dict(self.named_parameters())\nself.held['b'] = self.mean",
        "self.held = {'norm.weight': self.norm.weight, 'b': self.mean, 'other': torch.ones(9)}",
    ],
)
def test_a_list_or_dict_may_hold_what_the_model_registers(
    layers: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    texts = {
        "layers": f"{LAYERS}\n{layers}",
        "before": MOVING,
        "forward": "(x * (self.held['norm.weight'] + self.held['b']).view(-1, 1)).relu()",
    }
    checked(tmp_path, compiled_folder, backend, **texts)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "change", ["y[[0, 2], 1:3] = 1", "y[:, [0, 3]] *= 3\ny[1:, 2].neg_()", "y[[1]][0] += 1"]
)
def test_a_part_that_changes_may_be_named_by_numbers(
    change: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    texts = {"before": f"y = x.relu()\n{change}", "forward": "y * 2"}
    checked(tmp_path, compiled_folder, backend, **texts)


def test_a_part_of_a_buffer_of_several_names_that_changes_has_no_graph(tmp_path: Path) -> None:
    layers = "self.register_buffer('b', torch.ones(8, 8))\nself.register_buffer('own', self.b)"
    problem = problem_of(
        tmp_path, "x * self.b[1]", layers=layers, before="self.b[0] += x.sum()", x=X
    )
    with pytest.raises(NoGraphError, match="forward changes a view in place"):
        render_planned(problem, "cpp", {})


def test_a_list_of_tensors_that_change_has_no_graph(tmp_path: Path) -> None:
    layers = "self.held = [torch.ones(8), torch.ones(8)]"
    problem = problem_of(tmp_path, "x * 2", layers=layers, before="self.held[1].add_(x[0, 0])", x=X)
    with pytest.raises(NoGraphError, match=r"forward changes self\.held\[1\] in place"):
        render_planned(problem, "cpp", {})


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_attribute_may_have_any_name(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    texts = {
        "layers": "setattr(self, 'a b', torch.ones(6, 8))",
        "before": "getattr(self, 'a b').mul_(0.5).add_(x.mean(0))",
        "forward": "x - getattr(self, 'a b')",
    }
    planned = checked(tmp_path, compiled_folder, backend, **texts)
    assert 'setattr(self, "a b", ' in planned.text


def test_another_shape_in_place_of_a_buffer_has_no_graph(tmp_path: Path) -> None:
    top = CELL.format(lines="        self.h = self.h.double()")
    problem = problem_of(tmp_path, "self.cell(x[0])", layers="self.cell = Cell()", top=top, x=X)
    with pytest.raises(NoGraphError, match="another shape or dtype in place of h"):
        render_planned(problem, "cpp", {})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "dtypes", [("float16", "float32"), ("int16", "int64"), ("float32", "float64")]
)
def test_what_changes_in_place_keeps_its_type(
    dtypes: tuple[str, str], backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    own, other = (f"torch.{name}" for name in dtypes)
    layers = f"self.register_buffer('held', torch.full((8,), 3, dtype={own}))"
    change = f"self.held.add_((x[0, 0] * 30000).to({other}))\ny = self.held * 2"
    checked(tmp_path, compiled_folder, backend, layers=layers, before=change, forward="(x + 1, y)")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_buffer_may_lie_in_memory_as_it_did_not_when_it_was_traced(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    texts = {"before": "self.state.mul_(0.5).add_(x)\n" + MOVING, "forward": "self.state.relu()"}
    planned = checked(tmp_path, compiled_folder, backend, **texts)
    others = {"state": torch.ones(4, 8, 6).mT, "mean": torch.ones(12)[::2]}
    for name, other in others.items():
        models = planned.models()
        for model in models:
            setattr(model, name, deepcopy(other))
        same(planned, models)
