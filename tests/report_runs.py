"""Runs made by hand, for the tests of the reports: every status, and text that means harm."""

import msgspec

from kernelgen.grading.plan_record import PlannedStage, PlanRecord
from kernelgen.grading.timing.times import (
    Conditions,
    Confirmation,
    Limit,
    Speedup,
    Subject,
    Timing,
)
from kernelgen.grading.verdict import (
    BuildRecord,
    CaseResult,
    Correctness,
    KernelUse,
    Owner,
    Run,
    SanitizerFinding,
    SanitizerRecord,
    Status,
    Verdict,
    WorstElement,
    owner_of,
)
from kernelgen.sandbox.record import Containment, Limits

CASE = CaseResult(
    name="main",
    agreed=True,
    calls=4,
    elements=1000,
    wrong=0,
    max_abs_err=1.25e-6,
    ref_max_abs_err=7.5e-6,
    of_allowed=0.125,
    exact="float64",
)
CORRECTNESS = Correctness(
    max_abs_err=1.25e-6,
    ref_max_abs_err=7.5e-6,
    of_allowed=0.125,
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


PLAN = PlanRecord(
    problem="groupnorm",
    device="NVIDIA H200",
    stages=(
        PlannedStage(
            kind="library", name="conv2d", shape=(64, 8), moved_bytes=4_000_000_000,
            flops=2_000_000_000, bound="memory", expected_ms=1.0,
        ),
        PlannedStage(kind="view", name="reshape", shape=(512,)),
        PlannedStage(
            kind="map", name="relu", shape=(512,), formula="relu(add(conv2d, 1))",
            moved_bytes=6_000_000_000, bound="memory", expected_ms=1.5,
        ),
    ),
    minimal_bytes=8_000_000_000,
    fixed_sizes="1 of x",
    limit=Limit(
        limit_ms=2.0, fraction=0.8, bound="memory", source="counted", minimal_bytes=8_000_000_000,
        copy_gbps=4000.0,
    ),
)  # fmt: skip


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


def planned(*verdicts: Verdict, plan: PlanRecord = PLAN) -> Run:
    """Return a run of these verdicts with a plan."""
    return msgspec.structs.replace(run_of(*verdicts), plans=(plan,))


def every_status() -> Run:
    """Return a run that holds each status once, PASSED first."""
    others = [status for status in Status if status is not Status.PASSED]
    named = [failed(status, f"candidates/{status.value.lower()}.py") for status in others]
    return run_of(passed(), *named)


LONG_SOURCE = '''# problem: groupnorm
"""A solution."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_runtime.h>
// Each block takes a segment.
__global__ void segment_norm(const float* x, float* y, int n) {
  if (threadIdx.x < 32) y[0] = 0.5f * x[0];
}
"""
NOTE = "a string"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
'''

FULL_TIMING = Timing(
    candidate_ms=4.0,
    eager_ms=9.0,
    compile_ms=4.004,
    speedup={
        "eager": Speedup(median=2.25, ci95=(2.21, 2.28)),
        "compile": Speedup(median=1.001, ci95=(0.998, 1.004)),
        "max-autotune": Speedup(median=0.95, ci95=(0.94, 0.96)),
    },
    samples={
        "candidate": tuple(3.9 + 0.01 * step for step in range(21)),
        "eager": (*(8.95 + 0.005 * step for step in range(20)), 30.0),
        "compile": (4.004,) * 21,
        "max-autotune": tuple(3.8 + 0.002 * (step % 7) for step in range(21)),
    },
    subjects={
        "candidate": Subject(
            what="ModelNew", median_ms=4.0, quartiles_ms=(3.95, 4.05), host_ms=0.031,
        ),
        "eager": Subject(
            what="the reference as written, TF32 off", median_ms=9.0, quartiles_ms=(8.97, 9.02),
            host_ms=0.05,
        ),
        "compile": Subject(
            what="torch.compile, default options, TF32 off", median_ms=4.004,
            quartiles_ms=(4.004, 4.004),
        ),
        "max-autotune": Subject(
            what="torch.compile, max-autotune", median_ms=3.804, quartiles_ms=(3.802, 3.81)
        ),
    },
    minimal_bytes=15_032_385_536,
    gbps=3758.1,
    limit=Limit(
        limit_ms=3.52, fraction=0.88, bound="memory", source="counted",
        minimal_bytes=15_032_385_536, minimal_flops=137_438_953_472, copy_gbps=4270.5,
        flops_per_s=2.6e14, rate="three bf16 products",
    ),
    method="CUDA events, new inputs for every call",
    events_us=1.25,
    confirmed=Confirmation(
        at_most_ms=4.02, calls=8, batches=3, overhead_ms=0.306, outputs="in place",
        claimed_ms=4.0,
    ),
    conditions=Conditions(
        throttled=("power cap",), repeated_blocks=2,
    ),
)  # fmt: skip
FINDING = SanitizerFinding(
    tool="memcheck",
    severity="error",
    what="invalid __global__ read of size 4 bytes",
    kernel="segment_norm(float*)",
    count=32,
    first="segment_norm.cu:12, thread (3, 0, 0)",
)
FULL_CORRECTNESS = msgspec.structs.replace(
    CORRECTNESS,
    cases=(msgspec.structs.replace(CASE, deterministic=False, repeat_max_diff=2e-7),),
)


def full(solution: str = "solutions/full.py", **changes: object) -> Verdict:
    """Return a PASSED verdict in which everything that a grader can tell is there."""
    verdict = passed(
        solution,
        timing=FULL_TIMING,
        correctness=FULL_CORRECTNESS,
        sanitizer=SanitizerRecord(case="small", tools=("memcheck", "racecheck"), findings=()),
        containment=Containment(
            level="namespaces", landlock_abi=7, missing=("no user namespace",),
            limits=Limits(
                scratch_bytes=2**32, file_bytes=2**32, memory_bytes=2**35, processes=4096,
                open_files=65536,
            ),
        ),
        warnings=("the times vary",),
        source=LONG_SOURCE,
        log="compiling\n",
    )  # fmt: skip
    return msgspec.structs.replace(verdict, **changes)


def wrong(solution: str = "candidates/wrong.py", **changes: object) -> Verdict:
    """Return a WRONG_VALUES verdict with its worst element, findings and a log."""
    case = msgspec.structs.replace(CASE, agreed=False, wrong=7, max_abs_err=0.25, worst=WORST)
    verdict = failed(
        Status.WRONG_VALUES,
        solution,
        correctness=Correctness(
            max_abs_err=0.25, ref_max_abs_err=7.5e-6, expected_cases=("main", "odd"), cases=(case,)
        ),
        sanitizer=SanitizerRecord(case="small", tools=("memcheck",), findings=(FINDING,)),
        build=BuildRecord(seconds=12.5, cached=True),
        kernels=KERNELS,
        source=LONG_SOURCE,
        log="some\noutput\n",
    )
    return msgspec.structs.replace(verdict, **changes)


HARM = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)></pre></style>\"'><svg/onload=x>"
    "&lt;b&gt; {{ 7 * 7 }} "
    "\x00\x07\x1b[31mred\x1b]0;title\x07\u202egnirts\u2028\ud800\ufffe\x85 ]]>"
)


def harmful() -> tuple[Verdict, ...]:
    """Return verdicts in which a candidate has written harm wherever it can."""
    case = msgspec.structs.replace(
        CASE, name=HARM, exact=HARM, worst=msgspec.structs.replace(WORST, output=HARM)
    )
    correctness = msgspec.structs.replace(
        FULL_CORRECTNESS, cases=(case,), expected_cases=(HARM,), parameters={HARM: HARM}
    )
    subject = msgspec.structs.replace(FULL_TIMING.subjects["eager"], what=HARM)
    timing = msgspec.structs.replace(
        FULL_TIMING,
        method=HARM,
        speedup={HARM: FULL_TIMING.speedup["eager"]},
        samples={HARM: (1.0, 2.0, 3.0)},
        subjects={HARM: subject, "candidate": FULL_TIMING.subjects["candidate"]},
    )
    kernels = tuple(msgspec.structs.replace(use, name=HARM) for use in KERNELS)
    finding = msgspec.structs.replace(FINDING, tool=HARM, what=HARM, kernel=HARM, first=HARM)
    sanitizer = SanitizerRecord(case=HARM, tools=(HARM,), findings=(finding,))
    common = {
        "problem": HARM, "device": HARM, "warnings": (HARM,), "kernels": kernels,
        "sanitizer": sanitizer, "source": HARM + LONG_SOURCE + HARM, "log": HARM,
        "solution_sha256": HARM, "correctness": correctness,
    }  # fmt: skip
    return (
        full(f"{HARM}.py", timing=timing, **common),
        wrong(HARM, reason=HARM, **common),
    )
