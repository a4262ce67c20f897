"""Gradients as outputs: of the reference, and of candidates that keep parameters otherwise."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelgen.grading.candidate.parameters import give
from kernelgen.grading.correctness.compare import compare
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import expect_sound
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire.gradients import with_gradients
from kernelgen.grading.wire.module_state import initial_values, recorded_definitions
from kernelgen.grading.wire.values import tensors_of
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Precision
from kernelgen.rendering.solution import render

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""
HEADS = "self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)"


def reference_of(
    forward: str,
    inputs: str = "[torch.randn(8, 16)]",
    constructor: str = HEADS,
    arguments: str = "x",
    precision: Precision = "fp32",
) -> Reference:
    source = SOURCE.format(
        constructor=constructor, arguments=arguments, forward=forward, inputs=inputs
    )
    return Reference(
        name="main",
        source=source,
        device="cpu",
        seed=b"s",
        batch_independent=True,
        precision=precision,
        gradients=True,
    )


def outputs_of(reference: Reference, inputs: list[Any]) -> dict[str, Any]:
    with torch.no_grad():
        found: dict[str, Any] = reference.model(*inputs)
    return found


def test_gradients_are_those_of_autograd() -> None:
    one = reference_of("return torch.tanh(self.q(x)) * self.k(x).sum(1, keepdim=True), x.argmax(1)")
    inputs, expected = expect_sound(one, must_have_elements=True)
    assert expected.exact == "float64"
    x, (upstream,) = inputs
    found = outputs_of(one, inputs)
    assert [*found] == ["outputs", "of_inputs", "of_parameters"]
    plain = copy.deepcopy(one.model)
    plain.__class__ = type(one.model).__mro__[1]
    given = x.clone().requires_grad_()
    out, indices = plain(given)
    out.backward(upstream)
    assert torch.equal(found["outputs"][0], out.detach())
    assert torch.equal(found["outputs"][1], indices)
    assert torch.equal(found["of_inputs"][0], given.grad)
    assert {n: g.tolist() for n, g in found["of_parameters"].items()} == {
        name: parameter.grad.tolist()  # type: ignore[union-attr]
        for name, parameter in plain.named_parameters()
    }
    assert compare(tensors_of(found), expected, 1e-5, full=True).status is Status.PASSED


def test_a_forward_of_an_instances_own_is_called_with_gradients_too() -> None:
    one = reference_of(
        "return self.q(x)", constructor=f"{HEADS}; self.forward = lambda x: self.k(x) + 1.0"
    )
    inputs, expected = one.expect(1)
    found = outputs_of(one, inputs)
    assert found["of_parameters"]["k.weight"].any()
    assert not found["of_parameters"]["q.weight"].any()
    assert compare(tensors_of(found), expected, 1e-5, full=True).status is Status.PASSED


def test_upstream_gradients_are_new_in_each_call() -> None:
    one = reference_of("return self.q(x)")
    first, again, second = (one.code.make_inputs(call)[-1][0] for call in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert first.shape == (8, 16)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_are_of_the_precision_asked_for(precision: Precision) -> None:
    one = reference_of("return torch.tanh(self.q(x) + self.k.bias)", precision=precision)
    inputs, expected = expect_sound(one, must_have_elements=True)
    assert {tensor.element_size() for tensor in [*tensors_of(inputs), *expected.ref32]} == {2}
    assert compare(expected.ref32, expected, 1e-5, full=True).status is Status.PASSED


def test_what_nothing_depends_on_has_a_gradient_of_0() -> None:
    one = reference_of(
        "return self.q(x) + 0 * i",
        "[torch.randn(8, 16), torch.randn(3), torch.zeros(16, dtype=torch.int64)]",
        arguments="x, y, i",
    )
    found = outputs_of(one, one.code.make_inputs(0))
    assert len(found["of_inputs"]) == 2
    assert not found["of_inputs"][1].any()
    assert not found["of_parameters"]["k.weight"].any()
    assert found["of_parameters"]["q.weight"].any()


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        ("return x.argmax(1)", "record no gradient"),
        ("return self.q(x).detach()", "record no gradient"),
        ("return x.add_(1.0)", "in-place operation"),
    ],
)
def test_a_reference_without_gradients_is_refused(forward: str, why: str) -> None:
    with pytest.raises(ProblemFault, match=why):
        expect_sound(reference_of(forward), must_have_elements=True)


def test_the_operations_of_a_backward_count() -> None:
    forward = "return self.q(x)"
    one = reference_of(forward)
    assert one.products().note == ""
    assert one.products().flops == 3 * 2 * 8 * 16 * 16
    footprint = one.footprint()
    assert footprint is not None
    assert footprint.outputs == 4 * (8 * 16 + 8 * 16 + 2 * (16 * 16 + 16))


class Turned(nn.Module):
    """Keeps a weight transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.q_t, self.q_bias = nn.Parameter(torch.empty(16, 16)), nn.Parameter(torch.empty(16))
        self.k = nn.Linear(16, 16)
        self.q_t.data.copy_(_plain().q.weight.t())

    def forward(self, x: torch.Tensor) -> Any:
        """Return the product of both."""
        return (x @ self.q_t + self.q_bias) * self.k(x)


class Joined(nn.Module):
    """Keeps two layers in one."""

    def __init__(self) -> None:
        super().__init__()
        self.qk_weight = nn.Parameter(torch.empty(32, 16))
        self.qk_bias = nn.Parameter(torch.empty(32))

    def forward(self, x: torch.Tensor) -> Any:
        """Return the product of both."""
        q, k = (x @ self.qk_weight.t() + self.qk_bias).chunk(2, 1)
        return q * k


class Frozen(nn.Module):
    """Records no gradient of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.k.requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        """Return the product of both."""
        return self.q(x) * self.k(x)


class _plain(nn.Module):  # noqa: N801 - what candidates begin as
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)


@pytest.mark.parametrize(
    ("candidate", "status"),
    [(Turned, Status.PASSED), (Joined, Status.PASSED), (Frozen, Status.WRONG_VALUES)],
)
def test_gradients_have_the_references_names_and_shapes(
    candidate: Callable[[], nn.Module], status: Status
) -> None:
    reference = reference_of("return self.q(x) * self.k(x)")
    inputs, expected = reference.expect(1)
    values = [tensor for _, tensor in reference.state()]
    with recorded_definitions() as definitions:
        model = candidate()
    digests = tuple(initial_values(_plain())[name].plain for name, _ in reference.state())
    recipients, given = give(
        model, values, reference.described(), definitions, (initial_values(model), digests)
    )
    assert not given.missing
    names = reference.differentiated
    assert names == ("q.weight", "q.bias", "k.weight", "k.bias")
    with_gradients(model, lambda module, gradient: recipients.gradients(module, gradient, names))
    with torch.no_grad():
        found = model(*inputs)
    assert sorted(found["of_parameters"]) == sorted(names)
    assert compare(tensors_of(found), expected, 1e-5, full=True).status is status


def test_options_and_a_key_ask_for_gradients() -> None:
    problem = load_problem("softmax")
    assert not problem.gradients
    asked = GradeOptions(gradients=True)
    given = asked.applied_to(problem)
    assert given.gradients
    assert asked.overrides() == {"gradients": "forward and backward in one call"}
    text = render(given)
    assert "stays in torch: its kernels would record no gradient" in text
    assert "ModelNew = Model" in text
