"""Operators that stay in torch, and their results."""

from pathlib import Path
from typing import Any

import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend
from kernelgen.rendering.solution import render

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
X, Y = "torch.randn(3, 5, 7)", "torch.randn(3, 7, 6)"


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("torch.baddbmm(z, x, y, beta=0.5, alpha=2)", {"x": X, "y": Y, "z": "torch.randn(6)"}),
        ("torch.addmm(x[0], x[1], y[0], alpha=3)", {"x": X, "y": "torch.randn(3, 7, 7)"}),
        ("torch.rot90(x, 1, [1, 2])", {"x": X}),
        ("torch.full_like(x, 2, dtype=torch.float64).float() @ y", {"x": X, "y": Y}),
        ("x.to(torch.float64).sort(dim=1, descending=True, stable=True).values.float()", {"x": X}),
        ("F.gelu(x.double(), approximate='tanh').float()", {"x": X}),
    ],
)
def test_a_call_gives_what_its_schema_wants_by_name(
    forward: str, inputs: dict[str, str], tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, forward, **inputs), "cpp", compiled_folder)
    given = planned.reference["get_inputs"]()
    torch.testing.assert_close(planned.run(*given), planned.models()[0](*given))


@pytest.mark.parametrize(
    ("forward", "kind"),
    [
        ("x.relu()", "torch.Tensor"),
        ("(x.relu(),)", "tuple[torch.Tensor, ...]"),
        ("[x.relu(), x + 1]", "list[torch.Tensor]"),
        ("{'100 %': x.relu(), 'more': x + 1}", "dict[str, torch.Tensor]"),
        ("(x.relu(), {'states': [x + 1, x.exp()]})", "tuple"),
    ],
)
def test_forward_returns_tensors_as_the_model_does(
    forward: str, kind: str, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, forward, x=X), "cpp", compiled_folder)
    assert f") -> {kind}:\n" in planned.text
    x = torch.randn(3, 5, 7)
    found, wanted = planned.run(x), planned.models()[0](x)
    assert _shape_of(found) == _shape_of(wanted)
    torch.testing.assert_close(found, wanted)


def _shape_of(value: Any) -> Any:
    """Return a tree of tensors with their types instead."""
    if isinstance(value, dict):
        return {key: _shape_of(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(_shape_of, value)]
    return type(value)


@pytest.mark.parametrize(
    "change",
    [
        "y = x.clone()\ny[:, 0] = 2\ny.mul_(3)",
        "y = torch.zeros(3, 5, 9)\ny[:, :, 1:8] = x.exp()\ny[..., 0::2] += 1",
        "y = torch.relu(x)\ny.mT.add_(1)",
        "y = torch.relu(x)\n_, middle, _ = y.chunk(3)\nmiddle.mul_(2)",
        "y = torch.relu(x)\nF.dropout(y, 0.5, False).add_(1)",
        "self.states[0] = x.sum()\ny = x * self.states",
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_shares_memory_may_be_changed_in_place(
    backend: Backend, change: str, tmp_path: Path, compiled_folder: Path
) -> None:
    buffer = "self.register_buffer('states', torch.ones(7))"
    problem = problem_of(tmp_path, "y + 1", layers=buffer, before=change, x=X)
    planned = Planned(problem, backend, compiled_folder)
    reference, candidate = planned.models()
    x = torch.randn(3, 5, 7)
    torch.testing.assert_close(planned.run(x, model=candidate), reference(x))
    torch.testing.assert_close(candidate.state_dict(), reference.state_dict())


@pytest.mark.parametrize("value", ["x", "x.view(3, 5, 7)", "y"])
def test_an_attribute_shares_no_memory_with_what_the_caller_holds(
    value: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(
        tmp_path,
        "y",
        layers="self.held = torch.zeros(3, 5, 7)",
        before=f"y = x + self.held\nself.held.copy_({value})",
        x=X,
    )
    planned = Planned(problem, "cpp", compiled_folder)
    reference, candidate = planned.models()
    for _ in range(3):
        x = torch.randn(3, 5, 7)
        found, wanted = planned.run(x, model=candidate), reference(x)
        torch.testing.assert_close(found, wanted)
        for held in (x, found, wanted):
            held.zero_()


def _checked_twice(problem: Any, backend: Backend, compiled: Path) -> Planned:
    """Compare a solution with its Model in two calls, with one state of random numbers each."""
    planned = Planned(problem, backend, compiled)
    reference, candidate = planned.models()
    for seed in (1, 2):
        torch.manual_seed(seed)
        given = planned.reference["get_inputs"]()
        torch.manual_seed(seed)
        wanted = reference(*given)
        torch.manual_seed(seed)
        found = planned.run(*given, model=candidate)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    return planned


@pytest.mark.parametrize(
    ("before", "forward"),
    [
        # Read by several kernels each, out of memory's order.
        ("a, b = x.chunk(2, -1)", "(a * torch.sigmoid(b), a.abs().mean(), b.softmax(-1))"),
        (
            "i, f, g, o = x.chunk(4, 2)\nc = torch.sigmoid(f) * g + torch.sigmoid(i) * g.tanh()",
            "(torch.sigmoid(o) * torch.tanh(c), c)",
        ),
        ("a, b = x.split([3, 5], 2)\nc, d = a.chunk(2, 1)", "(c * d, c + 1, d.sum(0), b.exp())"),
        ("a, _, b = x.tensor_split(3, 1)", "(a * b, a.exp())"),
        # One part, of a list.
        ("(a,) = x.split(6, 1)\n(b,) = x.chunk(1, 0)", "(a * 2, a.sum(), b.exp())"),
        ("(a,) = x[:, :1].unbind(1)", "(a * 2, torch.gradient(x, dim=1)[0] + 1)"),
        # More results than a line holds.
        ("", f"({', '.join(f'x * {k} + {k}' for k in range(2, 17))})"),
        # Constants where torch takes a tensor alone.
        ("y = x.clone()\ny[y < 0] = -1.5\ny[:, 0] = 1.0", "(y.exp(), y)"),
        ("", "torch.where(x > 0, torch.tensor(2), torch.tensor(3)) * x"),
        ("", "torch.stack([x[0, 0, 0], torch.tensor(2.5)])"),
        ("y = x[0].clone()\ny.fill_diagonal_(2)", "y * 2"),
    ],
)
def test_parts_and_constants(
    before: str, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, before=before, x="torch.randn(4, 6, 8)")
    _checked_twice(problem, "cpp", compiled_folder)


@pytest.mark.parametrize(
    ("before", "forward"),
    [
        # Nobody reads them, and what is drawn after them follows.
        ("torch.randn(3)\nF.dropout(x, 0.1)", "F.dropout(x, 0.5) + 1"),
        ("torch.rand_like(x)", "x + torch.rand(7)"),
        # Their operands are computed, and lie as the Model's do.
        ("", "F.dropout(torch.relu(x.transpose(1, 2)), 0.5)"),
        ("", "(F.dropout(x.mT * 2, 0.3), F.alpha_dropout(x.permute(2, 0, 1) + 1, 0.5, True))"),
        ("y = torch.relu(x.mT)", "(torch.rand_like(y), torch.bernoulli(y.sigmoid()), y.mT + 1)"),
        ("y = torch.relu(x.permute(2, 0, 1))", "F.dropout(y.unsqueeze(1).flatten(0, 1), 0.5)"),
        ("y = torch.exp(x.mT)\ny.uniform_(0, 1)", "y * 2"),
        ("y = torch.empty_like(x)\ny.normal_(1, 2)", "y + x"),
        ("y = torch.empty_like(x)\ny.bernoulli_(0.3)", "y + x"),
        ("y = torch.empty_like(x)\ny.bernoulli_(0.5)", "y + x"),  # a default, in place alone
        ("", "(F.dropout(x, 0.0), F.dropout(x, 1.0), F.rrelu(x, training=True), F.dropout(x))"),
        ("", "F.dropout2d(torch.relu(x[None].transpose(1, 2)), 0.5)"),
        # Without changes of views in place, torch.export has another dropout.
        ("y = x.mT + 1\ny[0] = 2\ny[:, 1:].mul_(2)", "F.dropout(y.relu(), 0.5)"),
    ],
)
def test_random_numbers_are_the_models(
    before: str, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, before=before, x=X)
    _checked_twice(problem, "cpp", compiled_folder)


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ("7", "None"),
        ("7, dtype=torch.float32", "None"),
        ("7, device=x.device", "x.device"),
        ("7, device=x.device, layout=torch.strided", "x.device"),
    ],
)
def test_random_numbers_are_drawn_where_the_model_draws_them(
    given: str, device: str, tmp_path: Path
) -> None:
    text = render(problem_of(tmp_path, f"x + torch.rand({given}).to(x.device)", x=X))

    call = " ".join(text[text.index("aten.rand.default") :].split("\n\n")[0].split())
    assert f"device={device}" in call
