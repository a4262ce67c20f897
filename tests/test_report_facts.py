"""Details of precision, determinism and compute-sanitizer."""

import msgspec
import pytest
from report_runs import CASE, CORRECTNESS, failed, passed

from kernelgen.grading.verdict import (
    CaseResult,
    EffectivePrecision,
    SanitizerFinding,
    SanitizerRecord,
    Status,
    Verdict,
)
from kernelgen.report.details import details, remarkable

PRECISION = EffectivePrecision(
    name="TF32-like", case="main", elements=512, error=2.9e-4, fp32_error=1.7e-7,
    tf32_error=2.9e-4, bf16_error=2.3e-3,
)  # fmt: skip
FINDING = SanitizerFinding(
    tool="memcheck", severity="error", what="invalid read", kernel="k()", count=2, first=""
)


def of_case(case: CaseResult) -> Verdict:
    return passed(correctness=msgspec.structs.replace(CORRECTNESS, cases=(case,)))


def texts(verdict: Verdict) -> list[str]:
    return [line.text for line in details(verdict)]


def test_the_precision_stands_below_the_reason() -> None:
    correctness = msgspec.structs.replace(CORRECTNESS, effective_precision=PRECISION)
    assert texts(failed(Status.WRONG_VALUES, correctness=correctness))[3] == (
        "precision: TF32-like: off by 2.9e-04 of the signal, fp32 torch 1.7e-07, "
        "TF32 operands 2.9e-04, bf16 operands 2.3e-03 (case main)"
    )
    assert not remarkable(passed(correctness=correctness))


def test_other_bits_are_shown_though_nothing_is_wrong() -> None:
    unsteady = msgspec.structs.replace(CASE, deterministic=False, repeat_max_diff=2e-7)
    assert (
        "the same inputs gave other bits the second time, up to 2.0e-07 apart (case main)"
        in texts(of_case(unsteady))
    )
    assert remarkable(of_case(unsteady))
    steady = msgspec.structs.replace(CASE, deterministic=True, repeat_max_diff=0.0)
    assert not any("other bits" in text for text in texts(of_case(steady)))


@pytest.mark.parametrize(
    ("findings", "said"),
    [((), "clean"), ((FINDING,), "one finding"), ((FINDING, FINDING), "2 kinds of findings")],
)
def test_what_compute_sanitizer_came_to_is_shown(
    findings: tuple[SanitizerFinding, ...], said: str
) -> None:
    record = SanitizerRecord(case="main", tools=("memcheck", "racecheck"), findings=findings)
    assert remarkable(passed(sanitizer=record))
    assert texts(passed(sanitizer=record))[1] == (
        f"compute-sanitizer, memcheck and racecheck on case main: {said}"
    )
