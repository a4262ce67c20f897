"""Outputs that are indices: which others than torch's are as right."""

from collections.abc import Callable

import pytest
import torch
from oracle_references import model_source, oracle_reference

from kernelgen.grading.correctness.compare import Expected, compare
from kernelgen.grading.oracle import exact
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import trivial_answers
from kernelgen.grading.verdict import Status

TOLERANCE = 1e-5
PARTS = """self.linear = nn.Linear(16, 40)
        self.calls = 0
        self.register_buffer("count", torch.zeros(()))"""
FEW_VALUES = "torch.randint(0, 3, (6, 40)).float()"


def made(forward: str, inputs: str = FEW_VALUES) -> tuple[Reference, torch.Tensor, Expected]:
    """Return a reference, the input of a call, and what is expected of it."""
    reference = oracle_reference(model_source(forward, inputs, PARTS), seed=b"seed")
    (x,), expected = reference.expect(0)
    return reference, x, expected


def status(expected: Expected, *outputs: torch.Tensor) -> Status:
    return compare(list(outputs), expected, TOLERANCE, full=True).status


def last_largest(x: torch.Tensor) -> torch.Tensor:
    """Return the last index of the largest value of each row."""
    return x.shape[1] - 1 - x.flip(1).argmax(1)


@pytest.mark.parametrize(
    ("forward", "form"),
    [
        ("return x.argmax(1)", lambda last: last),
        ("return (-x).argmin(-1)", lambda last: last),
        ("return x.max(1).indices", lambda last: last),
        ("return x.argmax(1, keepdim=True)", lambda last: last[:, None]),
        ("return x.argmax(1, keepdim=True).squeeze(1).int()", lambda last: last.int()),
        ("return x.t().argmax(0)[2:].clone()", lambda last: last[2:]),
        ("return x.max(1).indices.view(2, 3).t()", lambda last: last.view(2, 3).t()),
        ("return x[None].argmax(2).expand(4, 6)", lambda last: last.expand(4, 6)),
        ("x.add_(1.0)\n        return x.argmax(1)", lambda last: last),
        ("self.count += 1\n        return (x * self.count.sign()).argmax(1)", lambda last: last),
        ("return (x + torch.rand(()) * 0.0).argmax(1)", lambda last: last),
    ],
)
def test_any_of_equal_maxima_agrees_in_whatever_form(
    forward: str, form: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    _, x, expected = made(forward)
    out = form(last_largest(x))
    assert not torch.equal(out, expected.ref32[0])
    assert status(expected, out) is Status.PASSED


@pytest.mark.parametrize("wrong", ["smaller", "beyond", "negative"])
def test_an_index_of_another_value_or_of_none_is_wrong(wrong: str) -> None:
    _, x, expected = made("return x.argmax(1)")
    out = last_largest(x)
    out[3] = {"smaller": int(x[3].argmin()), "beyond": 40, "negative": -1}[wrong]
    found = compare([out], expected, TOLERANCE, full=True)
    assert found.status is Status.WRONG_VALUES
    assert found.wrong == 1
    assert found.worst is not None
    assert found.worst.index == (3,)
    assert found.worst.got == float(out[3])


@pytest.mark.parametrize(
    ("forward", "added"),
    [
        ("return x.argmax(1) + 1", 1),
        ("i = x.argmax(1)\n        i += 1\n        return i", 1),
        ("return torch.cat([x.argmax(1), x.argmin(1)])[:6]", 0),
        # An index of another tensor, one row of which has one largest value.
        ("return nn.functional.one_hot(x.argmax(1)).argmax(1)", 0),
    ],
)
def test_what_is_computed_from_indices_must_be_equal(forward: str, added: int) -> None:
    _, x, expected = made(forward)
    assert status(expected, x.argmax(1) + added) is Status.PASSED
    assert status(expected, last_largest(x) + added) is Status.WRONG_VALUES


@pytest.mark.parametrize(
    "forward",
    [
        "i = x.argmax(1)\n        x.mul_(0.0)\n        return i",
        "i = x.argmax(1)\n        x.mul_(0.0)\n        return i.clone()",
        "self.calls += 1\n        return x.roll(self.calls, 1).argmax(1)",
        "return x.sort(dim=1, stable=True).indices[:, -1]",
    ],
)
def test_where_the_values_are_not_known_an_index_must_be_equal(forward: str) -> None:
    # The values are overwritten; another run gives others; the order is prescribed.
    _, _, expected = made(forward)
    (ref,) = expected.ref32
    assert status(expected, ref) is Status.PASSED
    others = (ref[:, None] + torch.arange(1, 40)) % 40
    assert all(status(expected, other) is Status.WRONG_VALUES for other in others.T)


def test_one_value_of_the_whole_tensor_is_found_too() -> None:
    _, x, expected = made("return x.argmax()")
    at = (x.flatten() == x.max()).nonzero()[-1, 0]
    assert status(expected, at) is Status.PASSED
    assert status(expected, x.argmin()) is Status.WRONG_VALUES


def test_nan_ties_with_nan_and_minus_zero_with_zero() -> None:
    _, x, expected = made("return x.argmax(1)", "torch.full((6, 40), torch.nan)")
    assert status(expected, torch.full((6,), 7)) is Status.PASSED
    signed = "torch.where(torch.rand(6, 40) < 0.5, -0.0, 0.0)"
    _, x, expected = made("return x.argmax(1)", signed)
    assert status(expected, last_largest(x)) is Status.PASSED
    _, x, expected = made("return x.argmax(1)", "torch.full((6, 40), -torch.inf)")
    assert status(expected, torch.full((6,), 7)) is Status.PASSED


@pytest.mark.parametrize("forward", ["x.topk(5, 1)", "x.sort(dim=1, descending=True)"])
def test_equal_values_may_be_ranked_in_any_order_and_none_twice(forward: str) -> None:
    _, x, expected = made(f"return tuple({forward})")
    values, ref = expected.ref32
    count = ref.shape[1]
    stable = x.sort(dim=1, descending=True, stable=True).indices[:, :count]
    other = x.shape[1] - 1 - x.flip(1).sort(dim=1, descending=True, stable=True).indices[:, :count]
    assert not torch.equal(stable, other)
    assert status(expected, values, stable) is Status.PASSED
    assert status(expected, values, other) is Status.PASSED
    # The values at these are right, too.
    other[4, 1] = other[4, 0]
    assert x[4, other[4, 1]] == values[4, 1]
    assert status(expected, values, other) is Status.WRONG_VALUES


def near(gap: float) -> tuple[str, str]:
    """Return a forward that rounds, and inputs whose second value is below the first by a gap."""
    inputs = (
        "(0.1 + 0.2 * torch.rand(6, 40)).index_fill(1, torch.tensor([3]), 1.0)"
        f".index_fill(1, torch.tensor([9]), 1.0 - {gap})"
    )
    return "return (x * 0.7).argmax(1)", inputs


@pytest.mark.parametrize(
    ("gap", "expected_status"), [(1e-6, Status.PASSED), (3e-4, Status.WRONG_VALUES)]
)
def test_computed_values_tie_within_the_bound_of_an_output(
    gap: float, expected_status: Status
) -> None:
    _, _, expected = made(*near(gap))
    assert expected.ref32[0].tolist() == [3] * 6
    assert status(expected, torch.full((6,), 9)) is expected_status
    assert status(expected, torch.full((6,), 4)) is Status.WRONG_VALUES


@pytest.mark.parametrize("forward", ["x.argmax(1)", "(x * 2.0).argmax(1)", "x.clone().argmax(1)"])
def test_values_that_are_not_rounded_must_be_equal(forward: str) -> None:
    _, inputs = near(1e-6)
    _, _, expected = made(f"return {forward}", inputs)
    assert status(expected, torch.full((6,), 9)) is Status.WRONG_VALUES


def test_sums_in_another_order_may_rank_what_is_near_otherwise() -> None:
    # Columns that differ by less than fp32 shows: its own order is chance.
    forward = "return (torch.cat([x, x * (1 + 1e-7)], 1) @ torch.ones(80, 2)).argmax(1)"
    _, _, expected = made(forward, "torch.randn(6, 40)")
    assert status(expected, 1 - expected.ref32[0]) is Status.PASSED


def test_without_memory_for_float64_computed_values_tie_within_the_plain_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "free_bytes", lambda _: 0)
    _, _, expected = made(*near(1e-6))
    assert status(expected, torch.full((6,), 9)) is Status.PASSED
    assert status(expected, torch.full((6,), 4)) is Status.WRONG_VALUES


def test_a_model_that_does_not_run_in_float64_is_noted() -> None:
    forward, inputs = near(1e-6)
    reference, _, expected = made(f"assert x.dtype is torch.float32\n        {forward}", inputs)
    assert status(expected, torch.full((6,), 9)) is Status.PASSED
    assert "AssertionError" in reference.exact.note


def test_the_reference_does_not_run_again_unless_an_index_differs() -> None:
    reference, _, expected = made("self.calls += 1\n        return x.argmax(1)")
    before = reference.model.calls
    assert status(expected, expected.ref32[0].clone()) is Status.PASSED
    assert reference.model.calls == before


def test_where_all_values_tie_an_answer_without_work_is_named() -> None:
    reference, x, expected = made("return x.topk(5, 1).indices", "torch.ones(6, 40)")
    trivial = trivial_answers(reference, [x], expected)
    assert trivial == ("indices in order along dimension 1",)
    reference, x, expected = made("return x.topk(5, 1).indices")
    assert trivial_answers(reference, [x], expected) == ()
