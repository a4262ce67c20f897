"""A run's exit code and its closing line."""

import pytest
from report_runs import every_status, failed, passed, run_of

from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.report.outcome import exit_code, summary

PASS = passed()
WRONG = failed(Status.WRONG_VALUES)
INVALID = failed(Status.INVALID_PROBLEM)
FAULT = failed(Status.GRADER_ERROR)
NO_DEVICE = failed(Status.NO_DEVICE)
TOO_LARGE_CANDIDATE = failed(Status.OUT_OF_MEMORY)
TOO_LARGE_PROBLEM = failed(Status.OUT_OF_MEMORY, owner=Owner.GRADER)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((PASS,), ExitCode.OK),
        ((PASS, PASS), ExitCode.OK),
        ((PASS, WRONG), ExitCode.CANDIDATE_FAILED),
        ((TOO_LARGE_CANDIDATE,), ExitCode.CANDIDATE_FAILED),
        ((PASS, INVALID), ExitCode.USAGE),
        ((FAULT,), ExitCode.GRADER_FAULT),
        ((PASS, NO_DEVICE), ExitCode.GRADER_FAULT),
        ((TOO_LARGE_PROBLEM,), ExitCode.GRADER_FAULT),
        ((FAULT, INVALID), ExitCode.USAGE),
        ((NO_DEVICE, INVALID, WRONG), ExitCode.CANDIDATE_FAILED),
        ((FAULT, PASS, WRONG), ExitCode.CANDIDATE_FAILED),
        ((), ExitCode.GRADER_FAULT),
    ],
)
def test_exit_code(verdicts: tuple[Verdict, ...], code: ExitCode) -> None:
    assert exit_code(run_of(*verdicts)) is code


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_no_status_but_passed_ends_in_zero(status: Status) -> None:
    assert exit_code(run_of(PASS, failed(status))) is not ExitCode.OK


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ((PASS, PASS, PASS), "3 of 3 passed on NVIDIA H200"),
        (
            (PASS, WRONG, INVALID, WRONG),
            "1 of 4 passed on NVIDIA H200 (2 WRONG_VALUES, 1 INVALID_PROBLEM)",
        ),
        ((failed(Status.NO_DEVICE, device=""),), "0 of 1 passed (1 NO_DEVICE)"),
        ((PASS, passed(device="AMD EPYC")), "2 of 2 passed on NVIDIA H200 and AMD EPYC"),
    ],
)
def test_summary(verdicts: tuple[Verdict, ...], line: str) -> None:
    assert summary(run_of(*verdicts)) == line


def test_summary_counts_every_status() -> None:
    line = summary(every_status())
    assert line.startswith(f"1 of {len(Status)} passed on NVIDIA H200 (")
    assert all(f"1 {status.value}" in line for status in Status if status is not Status.PASSED)
