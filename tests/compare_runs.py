"""Runs with samples drawn from fixed seeds, for the tests of comparisons."""

import random
from statistics import median
from typing import Any

import msgspec
from report_runs import TIMING, passed

from kernelgen.grading.timing.statistics import speedup
from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import Run, Verdict

SAMPLES = 20
ENVIRONMENT = {
    "gpu": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "python": "3.12.3", "cpu_threads": 16,
}  # fmt: skip


def timing(
    candidate_ms: float, *, seed: int, eager_ms: float | None = 9.0, noise: float = 0.003
) -> Timing:
    """Return times around these, with a relative noise; without eager where it has no time."""
    draw = random.Random(seed)
    centres = {"candidate": candidate_ms}
    if eager_ms is not None:
        centres["eager"] = eager_ms
    samples = {
        name: tuple(centre * draw.lognormvariate(0.0, noise) for _ in range(SAMPLES))
        for name, centre in centres.items()
    }
    candidate = samples["candidate"]
    baselines = {name: times for name, times in samples.items() if name != "candidate"}
    return msgspec.structs.replace(
        TIMING,
        candidate_ms=median(candidate),
        eager_ms=median(samples["eager"]) if eager_ms is not None else None,
        compile_ms=None,
        speedup={name: speedup(times, candidate) for name, times in baselines.items()},
        samples=samples,
    )


def timed(solution: str, times: Timing | None, **changes: Any) -> Verdict:
    """Return a pass with these times."""
    return passed(solution, timing=times, **changes)


def run_of(*verdicts: Verdict, **environment: Any) -> Run:
    """Return a run of these verdicts on the usual machine, with these facts replaced."""
    return Run(schema=1, environment={**ENVIRONMENT, **environment}, verdicts=verdicts)
