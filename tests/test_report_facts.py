"""Details of determinism and compute-sanitizer."""

import msgspec
import pytest
from report_runs import CASE, CORRECTNESS, passed

from kernelgen.grading.verdict import (
    CaseResult,
    SanitizerFinding,
    SanitizerRecord,
    Verdict,
)
from kernelgen.report.details import details, remarkable

FINDING = SanitizerFinding(
    tool="memcheck", severity="error", what="invalid read", kernel="k()", count=2, first=""
)


def of_case(case: CaseResult) -> Verdict:
    return passed(correctness=msgspec.structs.replace(CORRECTNESS, cases=(case,)))


def texts(verdict: Verdict) -> list[str]:
    return [line.text for line in details(verdict)]


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
