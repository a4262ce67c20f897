"""Compiling a candidate's extensions before its process is started, or finding them kept."""

import threading

from kernelgen.build.prebuild import Prebuilt, Wanted, prebuild
from kernelgen.build.store import BuildStore
from kernelgen.grading.options import GradeOptions
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.file import SolutionFile


def prebuild_solution(
    solution: SolutionFile,
    problem: Problem,
    options: GradeOptions,
    capability: tuple[int, int] | None,
    stop: threading.Event,
) -> Prebuilt:
    """Fill the build cache with what a candidate builds; needs no GPU, and any thread may call it.

    `capability` is that of the GPU to be graded on, such as (9, 0), or None for the CPU. What runs
    for this ends once `stop` is set.

    Raises:
        KernelgenFault: this machine could not contain it.
    """
    # Who turns containment off wants to see a candidate without it, its build included.
    if options.build_cache is None or options.sandbox == "off":
        return Prebuilt()
    device: Device = "cpu" if capability is None else "cuda"
    wanted = Wanted(
        solution=solution,
        reference_source=problem.reference_source(problem.all_cases()[0], device),
        capability=capability,
        timeout_s=options.build_timeout_s,
        stop=stop,
    )
    try:
        return prebuild(wanted, BuildStore(options.build_cache))
    except OSError as error:
        return Prebuilt(warning=f"the build cache {options.build_cache} was of no use: {error}")
