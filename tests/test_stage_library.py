"""What stays in torch, and what forward returns of it."""

from pathlib import Path
from typing import Any

import pytest
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend

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
    import torch

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
    import torch

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
    import torch

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
    import torch

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
