"""The effective precision: real small problems, computed in every precision that people use."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch.nn.functional import group_norm, linear

from kernelgen.grading.correctness.compare import compare
from kernelgen.grading.correctness.precision_name import explanation, in_words, warning
from kernelgen.grading.oracle import effective_precision
from kernelgen.grading.oracle.effective_precision import with_precision
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.verdict import EffectivePrecision, Status
from kernelgen.grading.wire.messages import Verified

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effective_precision, "_MOST_SECONDS", 60.0)


# The module is the problem's own, whose attributes no type knows.
Solution = Callable[[Any, torch.Tensor], Any]


def made(forward: str, inputs: str, constructor: str = "pass") -> Reference:
    source = SOURCE.format(constructor=constructor, forward=forward, inputs=inputs)
    return Reference(
        name="main", source=source, device="cpu", seed=b"seed", batch_independent=False
    )


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


def measured(reference: Reference, solution: Solution) -> Verified:
    inputs, expected = reference.expect(1)
    with torch.no_grad():
        outputs = [solution(reference.model, inputs[0]).float()]
    found = compare(outputs, expected, 1e-5, full=True)
    return with_precision(found, reference, inputs, expected, outputs)


def effective(reference: Reference, solution: Solution) -> EffectivePrecision:
    found = measured(reference, solution).effective_precision
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("reference", "solution", "name"),
    [
        (PRODUCT, product(torch.clone), "fp32-like"),
        (PRODUCT, serial_product, "fp32-like"),
        (PRODUCT, product(tf32), "TF32-like"),
        (PRODUCT, product(cut), "TF32-like"),
        (PRODUCT, product(fp16), "TF32-like"),
        (PRODUCT, product(bf16), "bf16-like"),
        (PRODUCT, lambda m, x: linear(x, bf16(m.l.weight), m.l.bias), "bf16-like"),
        (PRODUCT, lambda m, x: bf16(m(x)), "less than fp32"),
        (PRODUCT, lambda m, x: linear(x.double(), m.l.weight.double(), m.l.bias.double()),
         "better than fp32"),
        (PRODUCT, one_wrong, "less than fp32"),
        (PRODUCT, lambda m, x: linear(x, m.l.weight), "less than fp32"),
        (PRODUCT, lambda m, x: m(x) * (1 + 3e-5), "less than fp32"),
        (NORM, on(torch.clone), "fp32-like"),
        (NORM, on(tf32), "TF32-like"),
        (NORM, on(bf16), "bf16-like"),
        (NORM, lambda m, x: group_norm(x.double(), 2, m.n.weight.double(), m.n.bias.double()),
         "better than fp32"),
        (NORM, lambda _, x: group_norm(x, 2), "less than fp32"),
        (SOFTMAX, on(torch.clone), "fp32-like"),
        (SOFTMAX, on(tf32), "TF32-like"),
        (SOFTMAX, lambda m, x: bf16(m(x)), "less than fp32"),
        (COPY, on(torch.clone), "cannot be told"),
        (COPY, on(bf16), "bf16-like"),
        (HALVES, on(torch.clone), "cannot be told"),
        (HALVES, on(bf16), "cannot be told"),
        (SMALL, lambda m, x: tf32(x) @ tf32(m.w), "TF32-like"),
        (SMALL, lambda m, x: fp16(x) @ fp16(m.w), "fp16-like"),
    ],
)  # fmt: skip
def test_the_name_is_that_of_the_arithmetic(
    reference: Reference, solution: Solution, name: str
) -> None:
    assert effective(reference, solution).name == name


def test_an_honest_sum_is_not_taken_for_tf32_though_its_error_is_as_large() -> None:
    honest, rounded = effective(MEAN, serial_mean), effective(MEAN, on(tf32))
    assert honest.error is not None
    assert rounded.error is not None
    assert honest.error > rounded.error / 5
    assert (honest.name, rounded.name) == ("cannot be told", "TF32-like")


def test_the_figures_are_those_of_the_operands() -> None:
    found = effective(PRODUCT, product(bf16))
    assert found.error == pytest.approx(found.bf16_error, rel=1e-2)
    assert found.bf16_error == pytest.approx(8 * (found.tf32_error or 0.0), rel=0.3)
    assert found.fp16_error == pytest.approx(found.tf32_error, rel=1e-2)
    assert 1e-8 < (found.fp32_error or 0.0) < 1e-6
    assert found.resemblance == pytest.approx(1.0, abs=1e-2)
    assert (found.case, found.elements) == ("main", 8 * 64)


def test_a_format_that_overflows_has_no_figure() -> None:
    found = effective(LOUD, on(torch.clone))
    assert found.fp16_error is None
    assert found.tf32_error is not None


def test_wrong_values_are_explained_by_the_operands_that_give_them() -> None:
    found = measured(PRODUCT, product(tf32))
    assert found.status is Status.WRONG_VALUES
    assert "of the signal, is what TF32 operands give" in found.reason
    wrong = measured(PRODUCT, one_wrong)
    assert wrong.status is Status.WRONG_VALUES
    assert "operands" not in wrong.reason


def test_a_wrong_constant_is_never_said_to_be_rounded_operands() -> None:
    found = measured(PRODUCT, lambda m, x: m(x) * (1 + 7e-4))
    assert "operands" not in found.reason


def test_what_takes_too_long_or_is_too_large_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(effective_precision, "_MOST_SECONDS", 0.0)
        assert measured(PRODUCT, product(tf32)).effective_precision is None
    monkeypatch.setattr(effective_precision, "_MOST_BYTES", 1000)
    assert measured(PRODUCT, product(tf32)).effective_precision is None


def test_a_model_that_refuses_rounded_values_cannot_be_told() -> None:
    strict = made(
        "assert not torch.equal(x, x.bfloat16().to(x.dtype)); return x + 1", "torch.rand(5, 7)"
    )
    found = effective(strict, on(torch.clone))
    assert (found.name, found.elements, found.error) == ("cannot be told", 0, None)
    assert in_words(found) == "nothing could be measured"


@pytest.mark.parametrize("reference", [PRODUCT, MIXED], ids=["float32", "float64"])
def test_the_reference_is_left_as_it_was(reference: Reference) -> None:
    before = [tensor.clone() for _, tensor in reference.state()]
    effective(reference, on(tf32))
    pairs = zip(before, reference.state(), strict=True)
    assert all(torch.equal(old, new) for old, (_, new) in pairs)


PASSED = Verified(status=Status.PASSED, reason="", elements=4)
RECORD = EffectivePrecision(name="fp32-like", case="main", elements=4, error=1e-7)


def evidence_of(*cases: tuple[str, Status, EffectivePrecision | None]) -> Evidence:
    evidence = Evidence(expected=tuple(name for name, _, _ in cases))
    for name, status, found in cases:
        verified = msgspec.structs.replace(PASSED, status=status, effective_precision=found)
        evidence.open_case(name).add(verified)
    return evidence


def of_case(name: str, elements: int) -> EffectivePrecision:
    return msgspec.structs.replace(RECORD, case=name, elements=elements)


def test_main_is_named_before_larger_cases_and_the_one_that_failed_before_all() -> None:
    small, large = of_case("small", 4), of_case("large", 9)
    passed, wrong = Status.PASSED, Status.WRONG_VALUES
    both = (("small", passed, small), ("large", passed, large))
    main = ("main", passed, of_case("main", 6))
    assert evidence_of(*both, main).effective_precision() == main[2]
    assert evidence_of(*both, ("main", passed, None)).effective_precision() == large
    assert evidence_of(*both, ("main", wrong, main[2])).effective_precision() == main[2]
    assert evidence_of(("small", wrong, small), main).effective_precision() == small
    assert evidence_of(("main", passed, None)).effective_precision() is None


@pytest.mark.parametrize(
    ("name", "warned"),
    [("fp32-like", False), ("better than fp32", False), ("cannot be told", False),
     ("TF32-like", True), ("bf16-like", True), ("less than fp32", True)],
)  # fmt: skip
def test_less_than_fp32_is_warned_of(name: str, *, warned: bool) -> None:
    record = msgspec.structs.replace(RECORD, name=name, error=2e-4)
    evidence = evidence_of(("main", Status.PASSED, record))
    evidence.warn_of_precision()
    assert [f"effective precision is {name}" in text for text in evidence.warnings] == [
        True
    ] * warned
    assert bool(warning(record)) is warned


def test_only_a_named_format_explains() -> None:
    assert explanation(RECORD) == ""
    assert explanation(msgspec.structs.replace(RECORD, name="bf16-like", resemblance=0.9))
