"""Runs made by hand, for the tests of the reports: every status, and text that means harm."""

import msgspec

from kernelgen.grading.times import Speedup, Timing
from kernelgen.grading.verdict import (
    BuildRecord,
    CaseResult,
    Correctness,
    KernelUse,
    Owner,
    Run,
    Status,
    Verdict,
    WorstElement,
    owner_of,
)

CASE = CaseResult(
    name="main",
    agreed=True,
    calls=4,
    elements=1000,
    wrong=0,
    max_abs_err=1.25e-6,
    ref_max_abs_err=7.5e-6,
    exact="float64",
)
CORRECTNESS = Correctness(
    max_abs_err=1.25e-6,
    ref_max_abs_err=7.5e-6,
    expected_cases=("main",),
    cases=(CASE,),
    parameters={"weight": "gn.weight"},
    precision={"cuda_matmul_tf32": False},
)
TIMING = Timing(
    candidate_ms=5.304,
    eager_ms=9.08,
    compile_ms=5.311,
    speedup={
        "eager": Speedup(median=1.712, ci95=(1.704, 1.721)),
        "compile": Speedup(median=1.001, ci95=(0.998, 1.004)),
    },
    samples={"candidate": (5.3, 5.304, 5.31), "eager": (9.07, 9.08, 9.09)},
    minimal_bytes=15_032_385_536,
    gbps=2834.2,
    method="CUDA events, new inputs for every call",
)
KERNELS = (
    KernelUse(name="segment_norm<4>", owner="candidate", calls=1.0, share=0.75, time_us=4100.0),
    KernelUse(name="at::native::reduce", owner="aten", calls=2.5, share=0.2495, time_us=1364.0),
    KernelUse(name="Memset (Device)", owner="copy", calls=1.0, share=0.0005, time_us=2.7),
)
WORST = WorstElement(output="output", index=(0, 3), got=0.5, expected=0.25, bound=1e-5)


def passed(solution: str = "solutions/groupnorm.py", **changes: object) -> Verdict:
    """Return a full PASSED verdict with some fields replaced."""
    verdict = Verdict(
        problem="groupnorm",
        solution=solution,
        solution_sha256="ab" * 32,
        status=Status.PASSED,
        owner=Owner.CANDIDATE,
        reason="",
        device="NVIDIA H200",
        correctness=CORRECTNESS,
        timing=TIMING,
        build=BuildRecord(seconds=0.94, cached=False),
        kernels=KERNELS,
    )
    return msgspec.structs.replace(verdict, **changes)


def failed(status: Status, solution: str = "candidates/bad.py", **changes: object) -> Verdict:
    """Return a verdict that is not PASSED, owned as its status usually is."""
    verdict = Verdict(
        problem="groupnorm",
        solution=solution,
        solution_sha256="cd" * 32,
        status=status,
        owner=owner_of(status),
        reason=f"what {status.value} found\nand where",
        device="NVIDIA H200",
    )
    return msgspec.structs.replace(verdict, **changes)


def run_of(*verdicts: Verdict) -> Run:
    """Return a run of these verdicts."""
    return Run(schema=1, environment={"torch": "2.11.0"}, verdicts=verdicts)


def every_status() -> Run:
    """Return a run that holds each status once, PASSED first."""
    others = [status for status in Status if status is not Status.PASSED]
    named = [failed(status, f"candidates/{status.value.lower()}.py") for status in others]
    return run_of(passed(), *named)
