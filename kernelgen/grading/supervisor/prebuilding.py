"""Compiling a candidate's extensions before its process is started, or finding them kept."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from kernelgen.build.prebuild import Prebuilt, Wanted, prebuild
from kernelgen.build.store import BuildStore
from kernelgen.grading.options import GradeOptions
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.file import SolutionFile

# The supervisor, the oracle, the candidate, and one to spare.
_CORES_OF_A_TIMING = 4
_NICENESS = 10


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
        # In a thread of its own: what it starts has the thread's priority and cores.
        with ThreadPoolExecutor(1, initializer=_stand_aside) as thread:
            return thread.submit(prebuild, wanted, BuildStore(options.build_cache)).result()
    except OSError as error:
        return Prebuilt(warning=f"the build cache {options.build_cache} was of no use: {error}")


def has_cores_aside() -> bool:
    """Return whether compilers have cores that a file which is timed on a GPU does not need."""
    return len(os.sched_getaffinity(0)) >= 2 * _CORES_OF_A_TIMING


def _stand_aside() -> None:
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
    if has_cores_aside():
        os.sched_setaffinity(thread, sorted(os.sched_getaffinity(0))[_CORES_OF_A_TIMING:])
