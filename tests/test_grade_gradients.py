"""Gradients as outputs: of the reference, and of candidates that keep parameters otherwise."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from oracle_references import model_source, oracle_reference
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kernelgen.grading.candidate.parameters import give
from kernelgen.grading.correctness.compare import compare
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import expect_sound
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire.gradients import with_gradients
from kernelgen.grading.wire.module_state import (
    changed_copy,
    initial_values,
    recorded_definitions,
)
from kernelgen.grading.wire.values import map_tensors, tensors_of
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Manner, Precision
from kernelgen.rendering.solution import render

HEADS = "self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)"


def reference_of(
    forward: str,
    inputs: str = "[torch.randn(8, 16)]",
    constructor: str = HEADS,
    arguments: str = "x",
    precision: Precision = "fp32",
) -> Reference:
    source = model_source(forward, f"*{inputs}", constructor, takes=arguments)
    return oracle_reference(
        source, batch_independent=True, manner=Manner(precision=precision, gradients=True)
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


@pytest.mark.parametrize(
    "forward",
    [
        "return self.q(x) * (2.0 if x.sum() > 0 else -3.0)",
        "return self.q(x) / float(x.detach().abs().max())",
        "return self.q(x)[x[:, :1].squeeze(1).isfinite()]",
        "return F.dropout(self.q(x), 0.5) * x.max().item()",
    ],
)
def test_a_forward_that_depends_on_values_has_gradients(forward: str) -> None:
    one, another = reference_of(forward), reference_of(forward)
    inputs, expected = expect_sound(one, must_have_elements=True)
    assert expected.exact == "float64", one.exact.note
    pairs = zip(tensors_of(another.code.make_inputs(0)), tensors_of(inputs), strict=True)
    assert all(torch.equal(mine, yours) for mine, yours in pairs)
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
        ("return torch.from_numpy(x.numpy())", r"Model\.forward.*\n.*x\.numpy"),
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


# Constructors, forwards and inputs. Gradients jump at a ReLU's 0, at a bound, and where two values
# that a maximum is taken of change places.
JUMPS = {
    "layers": (
        "self.a, self.b, self.c = nn.Linear(64, 96), nn.Linear(96, 96), nn.Linear(96, 16)",
        "return self.c(torch.relu(self.b(torch.relu(self.a(x)))))",
        "[torch.randn(48, 64)]",
    ),
    "norm": (
        "self.c, self.n = nn.Conv2d(4, 16, 3), nn.BatchNorm2d(16)",
        "return F.relu(self.n(self.c(x)))",
        "[torch.randn(4, 4, 18, 18)]",
    ),
    "pool": (
        "self.c, self.b = nn.Conv2d(4, 16, 3), nn.Parameter(torch.rand(16, 1, 1))",
        "return F.max_pool2d(self.c(x) + self.b, 2).clamp(max=0.7)",
        "[torch.randn(4, 4, 18, 18)]",
    ),
}


def jumping(name: str, precision: Precision) -> Reference:
    constructor, forward, inputs = JUMPS[name]
    return reference_of(forward, inputs, constructor, precision=precision)


class Changes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Changes the operands or the results of operators."""

    def __init__(
        self,
        results: Callable[[torch.Tensor], torch.Tensor] = lambda one: one,
        operands: Callable[[torch.Tensor], torch.Tensor] = lambda one: one,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._results, self._operands = results, operands

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        del types
        name = func.overloadpacket.__name__
        if name in {"mm", "addmm", "convolution", "convolution_backward"}:
            args = tree_map_only(torch.Tensor, self._operands, args)
        found = func(*args, **(kwargs or {}))
        if any(one.alias_info for one in func._schema.returns):  # noqa: SLF001
            return found
        return tree_map_only(torch.Tensor, self._results, found)


def in_float32(reference: Reference, inputs: list[Any], mode: Changes) -> list[torch.Tensor]:
    """Return what the reference's model gives in fp32, computed in a mode."""

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float().clone()

    with torch.no_grad(), mode:
        model = changed_copy(reference.model, wide).float()
        return tensors_of(model(*map_tensors(inputs, wide)))


def rounded_to(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda one: one.to(dtype).to(one.dtype)


def status_of(
    reference: Reference, call: int, change: Callable[[list[Any]], list[torch.Tensor]]
) -> Status:
    inputs, expected = reference.expect(call)
    pairs = zip(change(inputs), expected.ref32, strict=True)
    outputs = [out.to(ref.dtype) for out, ref in pairs]
    return compare(outputs, expected, 1e-5, full=True).status


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", JUMPS)
def test_honest_gradients_that_jump_agree(name: str, precision: Precision) -> None:
    one = jumping(name, precision)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    expect_sound(one, must_have_elements=True)
    for call in range(3):
        for mode in (Changes(), Changes(rounded_to(dtype))):
            way = functools.partial(in_float32, one, mode=mode)
            assert status_of(one, call, way) is Status.PASSED
        as_eager = status_of(one, call, lambda given: tensors_of(outputs_of(one, given)))
        assert as_eager is Status.PASSED


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", JUMPS)
def test_wrong_gradients_that_jump_do_not(name: str, precision: Precision) -> None:
    one = jumping(name, precision)
    narrow = torch.float16 if precision == "fp32" else torch.float8_e5m2

    def scaled(given: list[Any], first: float, others: float) -> list[torch.Tensor]:
        outputs = in_float32(one, given, Changes())
        factors = [first, *[others] * (len(outputs) - 2), 1.0]
        return [out * factor for out, factor in zip(outputs, factors, strict=True)]

    ways = {
        "no gradient of an input": lambda given: scaled(given, 0.0, 1.0),
        "no gradients of parameters": lambda given: scaled(given, 1.0, 0.0),
        "a wrong factor": lambda given: scaled(given, 1 + 2.0**-3, 1 + 2.0**-3),
        "ones from above": lambda given: in_float32(
            one, [*given[:-1], [torch.ones_like(each) for each in given[-1]]], Changes()
        ),
        "narrow operands": lambda given: in_float32(
            one, given, Changes(operands=rounded_to(narrow))
        ),
    }
    for told, way in ways.items():
        assert Status.WRONG_VALUES in {status_of(one, call, way) for call in range(2)}, told


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_signs_that_only_rounding_tells_are_nobodys_fault(precision: Precision) -> None:
    """A million signs: a candidate's errors turn others than the reference's do.

    In 16 bits that is rounded, but no other sign for it.
    """
    forward, constructor = "return F.relu(self.a(x))", "self.a = nn.Linear(64, 2048)"
    one = reference_of(forward, "[torch.randn(512, 64)]", constructor, precision=precision)
    turned, share = 0, 2.0 ** (-21 if precision == "fp32" else -18)
    for call in range(3):
        inputs, expected = one.expect(call)
        generator = torch.Generator().manual_seed(call)

        def off(tensor: torch.Tensor, numbers: torch.Generator = generator) -> torch.Tensor:
            return tensor * (1 + (torch.rand(tensor.shape, generator=numbers) - 0.5) * share)

        wide = one.exact.perturbed(inputs, off)
        outputs = [out.to(ref.dtype) for out, ref in zip(wide, expected.ref32, strict=True)]
        alone = msgspec.structs.replace(expected, nearby=None)
        turned += compare(outputs, alone, 1e-5, full=True).status is not Status.PASSED
        assert compare(outputs, expected, 1e-5, full=True).status is Status.PASSED
        if turned and precision != "fp32":
            break
    assert turned


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_gradient_of_a_maximum_goes_to_the_first_of_equals(precision: Precision) -> None:
    inputs = "[(torch.randn(512, 90) * 4).round() / 4]"
    one = reference_of("return x.max(1).values", inputs, precision=precision)
    for call in range(2):
        (x, (upstream,)), expected = one.expect(call)
        largest = x.amax(1, keepdim=True)
        first = torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), upstream[:, None])
        every = torch.where(x == largest, upstream[:, None], 0.0)
        for of_x, status in ((first, Status.PASSED), (every, Status.WRONG_VALUES)):
            outputs = [of_x, *expected.ref32[1:]]
            assert compare(outputs, expected, 1e-5, full=True).status is status


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gradient_of_0_but_for_rounding_is_no_fault_of_the_reference(
    precision: Precision,
) -> None:
    """The bias of a convolution before a norm that takes the mean away."""
    one = jumping("norm", precision)
    inputs, expected = expect_sound(one, must_have_elements=True)
    outputs = in_float32(one, inputs, Changes())
    names = ["x", *sorted(one.differentiated or ())]
    for name in ("c.bias", "n.bias"):
        at = names.index(name)
        own = [out.to(ref.dtype) for out, ref in zip(outputs, expected.ref32, strict=True)]
        own[at] = torch.zeros_like(own[at])
        right = compare(own, expected, 1e-5, full=True).status is Status.PASSED
        assert right == (name == "c.bias")


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
    problem = load_problem("gelu")
    assert not problem.gradients
    asked = GradeOptions(gradients=True)
    given = asked.applied_to(problem)
    assert given.gradients
    assert asked.overrides() == {"gradients": "forward and backward in one call"}
    assert "torch.autograd.Function" in render(given)
    assert "torch.autograd.Function" not in render(problem)
    # Its table's numbers are those of forward alone, and a case has another number of dimensions.
    assert "stays in torch: case attention would need" in render(
        asked.applied_to(load_problem("softmax"))
    )
