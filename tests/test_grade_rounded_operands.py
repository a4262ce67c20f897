"""Wrong values explained by rounded operands: real small problems, in every precision in use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle_references import model_source, oracle_reference
from torch.nn.functional import group_norm, linear

from kernelgen.grading.oracle import rounded_operands
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.rounded_operands import explanation
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import Verified


@pytest.fixture(autouse=True)
def on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounded_operands, "_MOST_SECONDS", 60.0)


# The module is the problem's own, whose attributes no type knows.
Solution = Callable[[Any, torch.Tensor], Any]


def made(forward: str, inputs: str, constructor: str = "pass") -> Reference:
    return oracle_reference(model_source(forward, inputs, constructor), seed=b"seed")


PRODUCT = made("return self.l(x)", "torch.randn(8, 1024)", "self.l = nn.Linear(1024, 64)")
NORM = made("return self.n(x)", "torch.rand(3, 8, 5, 7)", "self.n = nn.GroupNorm(2, 8)")
SOFTMAX = made("return torch.softmax(x, 1)", "torch.rand(2, 30000)")
MEAN = made("return x.mean(1)", "torch.rand(64, 5000)")
COPY = made("return x.flip(0)", "torch.rand(20, 30)")
HALVES = made("return x @ x.T", "torch.randn(20, 500).bfloat16().float()")
SMALL = made("return x @ self.w", "torch.randn(32, 256)",
             "self.w = nn.Parameter(1e-6 * torch.rand(256, 64))")  # fmt: skip
MIXED = made("return (x.double() * self.w).float()", "torch.randn(8, 64)",
             "self.w = nn.Parameter(torch.rand(64, dtype=torch.float64))")  # fmt: skip
LOUD = made("return x.sum(1)", "1e5 * torch.rand(32, 256)")


def tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round to the nearest of 10 bits of mantissa, ties away from zero, as the candidates do."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0x1000) & -0x2000).view(torch.float32)


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """Cut to 10 bits of mantissa, as a tensor core does with fp32 that nobody rounded."""
    return (tensor.contiguous().view(torch.int32) & -0x2000).view(torch.float32)


def bf16(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16().float()


def fp16(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half().float()


def product(rounding: Callable[[torch.Tensor], torch.Tensor]) -> Solution:
    return lambda m, x: linear(rounding(x), rounding(m.l.weight), m.l.bias)


def on(rounding: Callable[[torch.Tensor], torch.Tensor]) -> Solution:
    return lambda model, x: model(rounding(x))


def serial_product(model: Any, x: torch.Tensor) -> Any:
    weight = model.l.weight
    sums = torch.zeros(len(x), len(weight))
    for k in range(x.shape[1]):
        sums = sums + x[:, k, None] * weight[None, :, k]
    return sums + model.l.bias


def serial_mean(_: Any, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(x))
    for k in range(x.shape[1]):
        total = total + x[:, k]
    return total / x.shape[1]


def one_wrong(model: Any, x: torch.Tensor) -> Any:
    out = model(x)
    out[3, 5] += 5e-3
    return out


def explained(reference: Reference, solution: Solution) -> str:
    """Return the format whose operands explain the errors, "" if none does."""
    inputs, expected = reference.expect(1)
    with torch.no_grad():
        outputs = [solution(reference.model, inputs[0]).float()]
    line = explanation(reference, inputs, expected, outputs)
    return line.rpartition(" is what ")[2].removesuffix(" operands give")


@pytest.mark.parametrize(
    ("reference", "solution", "name"),
    [
        (PRODUCT, product(torch.clone), ""),
        (PRODUCT, serial_product, ""),
        (PRODUCT, product(tf32), "TF32"),
        (PRODUCT, product(cut), "TF32"),
        (PRODUCT, product(fp16), "TF32"),
        (PRODUCT, product(bf16), "bf16"),
        (PRODUCT, lambda m, x: linear(x, bf16(m.l.weight), m.l.bias), "bf16"),
        (PRODUCT, lambda m, x: bf16(m(x)), ""),
        (PRODUCT, one_wrong, ""),
        (PRODUCT, lambda m, x: linear(x, m.l.weight), ""),
        (PRODUCT, lambda m, x: m(x) * (1 + 3e-5), ""),
        (PRODUCT, lambda m, x: m(x) * (1 + 7e-4), ""),
        (NORM, on(torch.clone), ""),
        (NORM, on(tf32), "TF32"),
        (NORM, on(bf16), "bf16"),
        (NORM, lambda _, x: group_norm(x, 2), ""),
        (SOFTMAX, on(tf32), "TF32"),
        (SOFTMAX, lambda m, x: bf16(m(x)), ""),
        (MEAN, serial_mean, ""),
        (MEAN, on(tf32), "TF32"),
        (COPY, on(torch.clone), ""),
        (COPY, on(bf16), "bf16"),
        (HALVES, on(bf16), ""),
        (SMALL, lambda m, x: tf32(x) @ tf32(m.w), "TF32"),
        (SMALL, lambda m, x: fp16(x) @ fp16(m.w), "fp16"),
        (LOUD, on(bf16), "bf16"),
    ],
)  # fmt: skip
def test_the_name_is_that_of_the_operands(
    reference: Reference, solution: Solution, name: str
) -> None:
    assert explained(reference, solution) == name


def test_the_error_is_told_in_units_of_the_signal() -> None:
    inputs, expected = PRODUCT.expect(1)
    with torch.no_grad():
        outputs = [product(bf16)(PRODUCT.model, inputs[0])]
    ((_, (exact,)),) = expected.exact_chunks()
    error = float((outputs[0].double() - exact).norm() / exact.norm())
    line = explanation(PRODUCT, inputs, expected, outputs)
    assert line == f"the error, {error:.1e} of the signal, is what bf16 operands give"


def test_what_takes_too_long_or_is_too_large_is_not_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rounded_operands, "_MOST_SECONDS", 0.0)
        assert explained(PRODUCT, product(tf32)) == ""
    monkeypatch.setattr(rounded_operands, "_MOST_BYTES", 1000)
    assert explained(PRODUCT, product(tf32)) == ""


def test_a_model_that_refuses_rounded_values_is_not_explained() -> None:
    strict = made(
        "assert not torch.equal(x, x.bfloat16().to(x.dtype)); return x + 1", "torch.rand(5, 7)"
    )
    assert explained(strict, lambda _, x: bf16(x) + 1) == ""


@pytest.mark.parametrize("reference", [PRODUCT, MIXED], ids=["float32", "float64"])
def test_the_reference_is_left_as_it_was(reference: Reference) -> None:
    before = [tensor.clone() for _, tensor in reference.state()]
    explained(reference, on(tf32))
    pairs = zip(before, reference.state(), strict=True)
    assert all(torch.equal(old, new) for old, (_, new) in pairs)


@pytest.mark.parametrize(
    ("error", "fp32", "of_allowed", "tolerance", "warned"),
    [
        (3e-4, 1e-7, 0.03, 1e-2, True),
        (3e-4, 1e-7, 0.9, 1e-5, False),  # by 1e-5, nothing is allowed that needs a warning
        (3e-4, 1e-5, 0.03, 1e-2, False),  # fp32 in another order may be as far off
        (3e-4, 0.0, 0.03, 1e-2, True),
        (3e-4, None, 0.03, 1e-2, False),
        (None, 1e-7, None, 1e-2, False),
    ],
)
def test_less_than_fp32_s_precision_is_warned_of_where_a_wide_tolerance_allows_it(
    error: float | None,
    fp32: float | None,
    of_allowed: float | None,
    tolerance: float,
    *,
    warned: bool,
) -> None:
    evidence = Evidence(expected=("main",))
    evidence.open_case("main").add(
        Verified(
            status=Status.PASSED,
            reason="",
            max_abs_err=error,
            ref_max_abs_err=fp32,
            of_allowed=of_allowed,
        )
    )
    evidence.warn_of_precision(tolerance)
    assert [text.partition(",")[0] for text in evidence.warnings] == [
        "case main is computed with less precision than fp32's"
    ] * warned
