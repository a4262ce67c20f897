"""The same inputs twice: equal bits, rounding, or more than that."""

import math
from pathlib import Path

import pytest
import torch
from warm_lane import graded

from kernelgen.grading.correctness.compare import Expected
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.oracle import repetition
from kernelgen.grading.oracle.repetition import FirstResult, compare_again, keep
from kernelgen.grading.verdict import CaseResult, Status
from kernelgen.grading.wire.transport import deposit
from kernelgen.problem.library import load_problem

HERE = Path(__file__).parent
TOLERANCE = 1e-5
EXACT = torch.linspace(1.0, 2.0, 1000, dtype=torch.float64)


def expected_of(exact: torch.Tensor) -> Expected:
    ref = exact.float()
    return Expected(
        described=deposit(ref, None),
        ref32=[ref],
        exact_chunks=lambda: iter([(0, [exact])]),
        exact="float64",
    )


EXPECTED = expected_of(EXACT)


def first() -> FirstResult:
    return keep([EXACT.float()], "cpu")


def test_the_same_bits_are_the_same() -> None:
    repeated = compare_again([EXACT.float()], first(), EXPECTED, TOLERANCE)
    assert (repeated.identical, repeated.max_diff, repeated.found) == (True, 0.0, None)


def test_rounding_is_recorded_and_agrees() -> None:
    out = EXACT.float()
    out[7] += 2e-6
    repeated = compare_again([out], first(), EXPECTED, TOLERANCE)
    assert (repeated.identical, repeated.found) == (False, None)
    assert repeated.max_diff == pytest.approx(2e-6, rel=0.1)


def test_more_than_rounding_is_wrong_and_a_race_is_named() -> None:
    out = EXACT.float()
    out[7] += 1e-2
    repeated = compare_again([out], first(), EXPECTED, TOLERANCE)
    assert repeated.found is not None
    assert repeated.found.status is Status.WRONG_VALUES
    assert "a race between threads" in repeated.found.reason
    assert "1 of 1000 elements" in repeated.found.reason


def test_a_nan_that_comes_the_second_time_is_not_finite_and_has_no_difference() -> None:
    out = EXACT.float()
    out[7] = math.nan
    repeated = compare_again([out], first(), EXPECTED, TOLERANCE)
    assert repeated.found is not None
    assert (repeated.found.status, repeated.max_diff) == (Status.NON_FINITE, None)


def test_special_values_are_like_themselves_and_zeros_differ_by_their_sign() -> None:
    exact = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0], dtype=torch.float64)
    expected, out = expected_of(exact), exact.float()
    kept = keep([out.clone()], "cpu")
    assert compare_again([out.clone()], kept, expected, TOLERANCE).identical
    out[3] = -0.0
    repeated = compare_again([out], kept, expected, TOLERANCE)
    assert (repeated.identical, repeated.max_diff, repeated.found) == (False, 0.0, None)


def test_strides_are_free_the_second_time_too() -> None:
    exact = EXACT.reshape(20, 50)
    kept = keep([exact.float()], "cpu")
    turned = exact.float().t().contiguous().t()
    assert compare_again([turned], kept, expected_of(exact), TOLERANCE).identical


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_every_dtype_can_be_compared(dtype: torch.dtype) -> None:
    out = torch.tensor([0, 1, 1, 0]).to(dtype)
    expected = Expected(
        described=deposit(out, None),
        ref32=[out],
        exact_chunks=lambda: iter([(0, [out])]),
        exact="float32",
    )
    assert compare_again([out.clone()], keep([out], "cpu"), expected, TOLERANCE).identical
    other = ~out if dtype is torch.bool else 1 - out
    repeated = compare_again([other], keep([out], "cpu"), expected, TOLERANCE)
    assert (repeated.identical, repeated.max_diff) == (False, 1.0)
    assert repeated.found is not None


def test_what_does_not_fit_is_kept_in_part_and_still_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repetition, "free_bytes", lambda _: 20_000)
    kept = first()
    assert not kept.whole
    assert [len(part) for part in kept.kept] == [500]
    assert compare_again([EXACT.float()], kept, EXPECTED, TOLERANCE).identical
    out = EXACT.float()
    out[-1] += 1e-2
    assert compare_again([out], kept, EXPECTED, TOLERANCE).found is not None


def test_an_empty_output_is_the_same() -> None:
    empty = torch.empty(0, 4)
    repeated = compare_again([empty], keep([empty], "cpu"), expected_of(empty.double()), TOLERANCE)
    assert repeated.identical


def case_of(name: str, problem: str) -> CaseResult:
    options = GradeOptions(
        problem=load_problem(HERE / "problems" / f"{problem}.yaml"), device="cpu", time=False
    )
    verdict = graded(HERE / "candidates" / name, options)
    assert verdict.status is Status.PASSED, verdict.reason
    assert not [text for text in verdict.warnings if "inputs" in text and "add" not in text]
    assert verdict.correctness is not None
    return verdict.correctness.cases[-1]


def test_a_verdict_says_that_the_bits_were_the_same() -> None:
    case = case_of("honest_serial_mean.py", "tiny_mean")
    assert (case.deterministic, case.repeat_max_diff) == (True, 0.0)


def test_a_verdict_says_how_far_two_sums_in_other_orders_are_apart() -> None:
    case = case_of("honest_order_of_sums.py", "tiny_mean")
    assert case.deterministic is False
    assert case.repeat_max_diff is not None
    assert 0.0 < case.repeat_max_diff < 1e-5
