"""What can be said of a CUDA candidate without a GPU: whether it compiles. Never a pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from kernelgen.build.solution_build import Tools, build_solution
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import ToolchainError
from kernelgen.grading.judged import Judged
from kernelgen.grading.verdict import Status
from kernelgen.problem.record import Problem
from kernelgen.solution.file import SolutionFile

# The oldest architecture that the project supports: what compiles for it compiles for newer ones,
# unless it says otherwise itself.
_ARCH = "sm_80"


def build_without_device(solution: SolutionFile, problem: Problem, why: str) -> NoReturn:
    """Compile a candidate's CUDA sources and judge that much.

    Args:
        solution: the candidate.
        problem: gives the constructor's arguments.
        why: there is no device.

    Raises:
        Judged: always: BUILD_ERROR or NO_DEVICE.
    """
    try:
        tools = Tools(toolkit=find_toolkit(), compiler=find_compiler())
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
            source = problem.reference_source(problem.all_cases()[0], "cuda")
            try:
                built = build_solution(solution, source, (_ARCH,), tools, executor)
            except BaseException:
                # ^C, SIGTERM, or a disk that is full: leaving the pool waits for its compilers.
                tools.stop.set()
                raise
    except ToolchainError as error:
        raise Judged(Status.NO_DEVICE, f"not graded and not built: {why}, and {error}") from error
    if not built.ok:
        raise Judged(Status.BUILD_ERROR, built.reason)
    what = f" for {_ARCH}" if any(run.arch for run in built.compile_times) else ""
    raise Judged(
        Status.NO_DEVICE,
        f"built{what} in {built.seconds:.1f} s, not graded: {why}; grade it where there is a GPU",
    )
