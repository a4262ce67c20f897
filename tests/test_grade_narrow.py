"""The bound of bf16 and fp16: real small problems, honest and dishonest ways to compute them."""

import math
from collections.abc import Callable

import msgspec
import pytest
import torch
from oracle_references import model_source, oracle_reference
from torch.nn import functional

from kernelgen.errors import UserError
from kernelgen.grading.correctness.compare import compare
from kernelgen.grading.correctness.elements import Bound
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import expect_sound
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire.values import tensors_of
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import KERNELBENCH_TOLERANCE, Manner, Precision

Floats = list[torch.Tensor]
Way = Callable[..., torch.Tensor]
TOLERANCE = 1e-5
NARROW: tuple[Precision, ...] = ("bf16", "fp16")

# The list that get_inputs returns, and forward as a function of that.
PROBLEMS: dict[str, tuple[str, Way]] = {
    "gelu": ("[torch.randn(64, 300)]", functional.gelu),
    "softmax": ("[torch.randn(16, 2000)]", lambda x: torch.softmax(x, 1)),
    "sum": ("[torch.rand(4, 1 << 18) / 64]", lambda x: x.sum(1)),
    "cancelling sum": ("[torch.randn(64, 1 << 14)]", lambda x: x.sum(1)),
    "scaled softmax": (
        "[torch.randn(64, 200) * 4]",
        lambda x: torch.softmax(x * 1.7, 1),
    ),
    "exponential": (
        "[torch.randn(64, 128), torch.randn(128, 96) / 8]",
        lambda a, b: torch.exp(a @ b),
    ),
    "saturated product": (
        "[torch.randn(256, 24), torch.randn(24, 16) / 5]",
        lambda a, b: torch.tanh(a @ b) * 1.3,
    ),
    "norm": (
        "[torch.randn(32, 1500), torch.rand(1500) + 0.5]",
        lambda x, w: functional.layer_norm(x, (x.shape[1],), w),
    ),
    "product": ("[torch.rand(48, 2000), torch.randn(2000, 40)]", lambda a, b: a @ b),
    "convolution": (
        "[torch.randn(2, 16, 20, 20), torch.randn(24, 16, 3, 3)]",
        functional.conv2d,
    ),
    "chain": (
        "[torch.rand(32, 600), torch.randn(600, 64) / 20, torch.rand(64)]",
        lambda a, b, c: torch.sigmoid(functional.layer_norm(a @ b + c, (64,)) * 3) * c,
    ),
    "attention": (
        "[torch.randn(2, 70, 32), torch.randn(2, 70, 32), torch.randn(2, 70, 32)]",
        lambda q, k, v: torch.softmax(q @ k.transpose(1, 2) / 32**0.5, -1) @ v,
    ),
    "loss": (
        "[torch.randn(256, 50), torch.randn(256, 50)]",
        lambda x, y: ((x - y) ** 2).mean(),
    ),
}
_FORWARDS = {
    "gelu": "x: F.gelu(x)",
    "softmax": "x: torch.softmax(x, 1)",
    "sum": "x: x.sum(1)",
    "cancelling sum": "x: x.sum(1)",
    "scaled softmax": "x: torch.softmax(x * 1.7, 1)",
    "exponential": "a, b: torch.exp(a @ b)",
    "saturated product": "a, b: torch.tanh(a @ b) * 1.3",
    "norm": "x, w: F.layer_norm(x, (x.shape[1],), w)",
    "product": "a, b: a @ b",
    "convolution": "x, w: F.conv2d(x, w)",
    "chain": "a, b, c: torch.sigmoid(F.layer_norm(a @ b + c, (64,)) * 3) * c",
    "attention": "q, k, v: torch.softmax(q @ k.transpose(1, 2) / 32**0.5, -1) @ v",
    "loss": "x, y: ((x - y) ** 2).mean()",
}


def reference_of(inputs: str, forward: str, precision: Precision, seed: bytes = b"s") -> Reference:
    arguments, result = forward.split(": ", 1)
    source = model_source(f"return {result}", f"*{inputs}", takes=arguments)
    return oracle_reference(source, seed=seed, manner=Manner(precision=precision))


def status_of(
    name: str, precision: Precision, way: Callable[[Way, Floats], torch.Tensor]
) -> Status:
    """Return the status of a way to compute a problem, in three draws of inputs."""
    inputs, forward = PROBLEMS[name]
    reference = reference_of(inputs, _FORWARDS[name], precision)
    for call in range(3):
        given, expected = reference.expect(call)
        (ref,) = expected.ref32
        assert ref.dtype is {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        out = way(forward, tensors_of(given)).to(ref.dtype)
        found = compare([out], expected, TOLERANCE, full=True)
        assert compare([out], expected, TOLERANCE, full=False).status is found.status
        if found.status is not Status.PASSED:
            return found.status
    return Status.PASSED


def in_float32(forward: Way, given: Floats) -> torch.Tensor:
    """Compute in fp32 registers, and round once: the best that a kernel can do."""
    return forward(*(one.float() for one in given))


def as_eager(forward: Way, given: Floats) -> torch.Tensor:
    """Round each intermediate tensor."""
    return forward(*given)


def reversed_order(forward: Way, given: Floats) -> torch.Tensor:
    """Compute batches and rows in another order, and so with other vectors."""
    rows = given[0].shape[0]
    flipped = [one.flip(0).contiguous() if one.shape[0] == rows else one for one in given]
    found = forward(*(one.float() for one in flipped))
    return found.flip(0) if found.dim() and found.shape[0] == rows else found


def rounded_up_then_down(forward: Way, given: Floats) -> torch.Tensor:
    """Round to fp32 what was summed in float64."""
    return forward(*(one.double() for one in given)).float()


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("way", [in_float32, as_eager, reversed_order, rounded_up_then_down])
def test_honest_ways_agree(name: str, way: Way, precision: Precision) -> None:
    assert status_of(name, precision, way) is Status.PASSED


def cut_off(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round towards 0, which errs by twice as much as it may."""
    near = wide.to(dtype)
    return torch.where(
        near.float().abs() > wide.abs(), near.nextafter(torch.zeros_like(near)), near
    )


def short_sums(forward: Way, given: Floats) -> torch.Tensor:
    """Add up 512 parts of the depth in the narrow type."""
    del forward
    a, b = given[0], given[1] if len(given) > 1 else torch.ones_like(given[0][:1]).T
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for part in torch.arange(a.shape[1]).chunk(512):
        total += (a[:, part].float() @ b[part].float()).to(a.dtype)
    return total if len(given) > 1 else total[:, 0]


def small_ones_to_0(forward: Way, given: Floats) -> torch.Tensor:
    """Leave out what is less than a thousandth of the largest element."""
    found = in_float32(forward, given)
    return torch.where(found.abs() < 1e-3 * found.abs().max(), 0.0, found)


def rounded_products(forward: Way, given: Floats) -> torch.Tensor:
    """Round each product that a sum is of, which shows where they cancel."""
    a, b = given
    terms = (a[:, :, None] * b).float()
    return forward(terms.sum(1), torch.eye(b.shape[1]))


def without_the_last(forward: Way, given: Floats) -> torch.Tensor:
    """Leave out the last term of each sum."""
    wide = [one.float() for one in given]
    if len(wide) > 1 and wide[0].shape[1] == wide[1].shape[0]:
        return forward(wide[0][:, :-1], wide[1][:-1], *wide[2:])
    return forward(wide[0][..., :-1], *wide[1:])


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("product", short_sums),
        ("norm", lambda forward, given: cut_off(in_float32(forward, given), given[0].dtype)),
        ("sum", short_sums),
        ("cancelling sum", short_sums),
        ("scaled softmax", small_ones_to_0),
        ("exponential", small_ones_to_0),
        ("saturated product", rounded_products),
        ("product", without_the_last),
        ("cancelling sum", without_the_last),
        ("chain", without_the_last),
        ("gelu", lambda _, given: functional.gelu(given[0].float(), approximate="tanh")),
        ("norm", lambda forward, given: in_float32(forward, given) * (1 + 2.0**-12)),
        ("softmax", lambda forward, given: in_float32(forward, [given[0] * 1.01])),
        ("attention", lambda forward, given: in_float32(forward, given) * 1.02),
        ("loss", lambda forward, given: in_float32(forward, given) * 256 / 255),
    ],
)
def test_less_than_fp32_registers_does_not(name: str, way: Way, precision: Precision) -> None:
    assert status_of(name, precision, way) is Status.WRONG_VALUES


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bound_is_half_a_unit_in_the_last_place(dtype: torch.dtype) -> None:
    """Also beside a power of two, and where numbers lose bits to the least exponent."""
    reference = reference_of("[torch.rand(9)]", "x: x", "fp32")
    _, expected = reference.expect(0)
    info = torch.finfo(dtype)
    exact = torch.tensor([1.0, 1.0 - info.eps / 5, 3.0, 1e-3, info.smallest_normal / 3, 0.0])
    exact = exact.double()
    ref = exact.to(dtype)
    expected = msgspec.structs.replace(
        expected, ref32=[ref], exact_chunks=lambda: iter([(0, [exact])])
    )
    assert compare([ref], expected, 1e-60, full=True).status is Status.PASSED
    for at in range(len(exact)):
        for way in (-1, 1):
            out = ref.clone()
            out[at] = torch.nextafter(ref[at], torch.tensor(float(way * 9), dtype=dtype))
            size = float(exact[at])
            power = 2.0 ** (math.frexp(size)[1] - 1) if size else 0.0  # at most the number
            half = 0.5 * info.eps * max(power, info.smallest_normal)
            near = abs(float(out[at]) - size) <= half
            found = compare([out], expected, 1e-60, full=True)
            assert (found.status is Status.PASSED) == near


@pytest.mark.parametrize("precision", NARROW)
def test_the_exact_result_rounded_agrees_at_sight(precision: Precision) -> None:
    reference = reference_of("[torch.randn(64, 300)]", "x: F.gelu(x)", precision)
    given, expected = reference.expect(1)
    out = in_float32(functional.gelu, tensors_of(given)).to(expected.ref32[0].dtype)
    assert compare([out], expected, TOLERANCE, full=True).of_allowed is not None
    assert compare([out], expected, TOLERANCE, full=False).of_allowed is None  # it is not measured
    for wrong in math.nan, math.inf, -math.inf, 0.0, float(out.max()) * 1.02:
        off = out.clone()
        off.view(-1)[out.argmax()] = wrong
        assert compare([off], expected, TOLERANCE, full=False).wrong == 1


@pytest.mark.parametrize("precision", NARROW)
def test_indices_may_differ_where_what_they_rank_is_rounded(precision: Precision) -> None:
    reference = reference_of(
        "[torch.rand(64, 200), torch.rand(200, 300)]", "a, b: (a @ b).argmax(1)", precision
    )
    differ = 0
    for call in range(4):
        (a, b), expected = reference.expect(call)
        own = (a.double() @ b.double()).argmax(1)
        differ += int((own != expected.ref32[0]).sum())
        assert compare([own], expected, TOLERANCE, full=True).status is Status.PASSED
        second = (a.double() @ b.double()).topk(40, 1).indices[:, -1]
        assert compare([second], expected, TOLERANCE, full=True).status is Status.WRONG_VALUES
    assert differ


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(
    "forward", ["torch.sigmoid(x / 99) > 0.5", "torch.floor(x * 1.1).long(), torch.tanh(x)"]
)
def test_integers_and_bools_are_those_of_rounded_or_of_exact_values(
    forward: str, precision: Precision
) -> None:
    reference = reference_of("[torch.randn(64, 300) * 5]", f"x: ({forward})", precision)
    (x,), expected = expect_sound(reference, must_have_elements=True)
    ref = expected.ref32
    wide = tensors_of(reference.model(x.float()))
    own = [out.to(like.dtype) for out, like in zip(wide, ref, strict=True)]
    assert not torch.equal(own[0], ref[0])
    for right in (own, ref):
        assert compare(right, expected, TOLERANCE, full=True).status is Status.PASSED
    for at in (0, int((own[0] != ref[0]).int().argmax())):
        wrong = own[0].clone()
        wrong.view(-1)[at] = not wrong.view(-1)[at] if wrong.dtype is torch.bool else 99
        found = compare([wrong, *own[1:]], expected, TOLERANCE, full=True)
        # Of the two values of a bool, either is right where they differ.
        either = wrong.dtype is torch.bool and at > 0
        assert found.status is (Status.PASSED if either else Status.WRONG_VALUES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_changes_0_by_no_more_than_the_least_numbers(dtype: torch.dtype) -> None:
    bound = Bound(0.0, 0.0, dtype=dtype)
    size = torch.tensor([0.0, torch.finfo(dtype).smallest_normal / 5, 1.0], dtype=torch.float64)
    half = 0.25 * torch.finfo(dtype).eps * torch.finfo(dtype).smallest_normal
    least, small, one = bound.rounding(size).tolist()
    assert least == small <= 2 * half
    assert one == 0.5 * torch.finfo(dtype).eps


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(
    "draws",
    [
        "F.dropout(x, 0.5)",
        "x + torch.rand_like(x)",
        "x * torch.randn_like(x).relu()",
        "x + torch.randn(x.shape, dtype=x.dtype)",
        "x + torch.rand(x.shape)",
    ],
)
def test_a_reference_that_draws_has_an_exact_result(precision: Precision, draws: str) -> None:
    reference = reference_of("[torch.rand(64, 200)]", f"x: {draws}", precision)
    reference.expect(0)  # the first call tells that it draws
    _, expected = reference.expect(1)
    assert expected.exact == "float64", reference.exact.note


@pytest.mark.parametrize("precision", NARROW)
def test_parameters_inputs_and_buffers_are_narrow(precision: Precision) -> None:
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.table = nn.BatchNorm1d(8), nn.Embedding(5, 8)

    def forward(self, x, i):
        assert x.dtype == self.table.weight.dtype == self.norm.running_mean.dtype
        return self.norm(x) + self.table(i)

def get_inputs():
    return [torch.rand(16, 8), torch.arange(16) % 5]

def get_init_inputs():
    return []
"""
    one = oracle_reference(source, manner=Manner(precision=precision))
    inputs, expected = expect_sound(one, must_have_elements=True)
    assert expected.exact == "float64"
    assert [str(each.dtype).removeprefix("torch.") for each in tensors_of(inputs)][1] == "int64"
    assert {tensor.element_size() for _, tensor in one.state() if tensor.is_floating_point()} == {2}
    footprint = one.footprint()
    assert footprint is not None
    assert footprint.outputs == 16 * 8 * 2
    assert reference_of(*_of("product"), precision).products().operand_bits in {8, 11}


def _of(name: str) -> tuple[str, str]:
    return PROBLEMS[name][0], _FORWARDS[name]


def test_an_imprecise_reference_is_refused_in_words_of_its_type() -> None:
    reference = reference_of("[torch.rand(64, 2000)]", "x: (x.sum(1) - 1000.0) ** 3", "bf16")
    with pytest.raises(ProblemFault, match="the reference in bfloat16 is off from itself"):
        expect_sound(reference, must_have_elements=True)


def test_options_stand_in_for_the_problems_precision() -> None:
    problem = load_problem("softmax")
    assert problem.precision == "fp32"
    asked = GradeOptions(precision="bf16", tolerance="kernelbench")
    given = asked.applied_to(problem)
    assert (given.precision, given.tolerance) == ("bf16", KERNELBENCH_TOLERANCE["bf16"])
    assert asked.overrides()["precision"] == "bf16"
    with pytest.raises(UserError):
        GradeOptions(baselines=("none",))
