"""The environment of the fork server, and so of what it starts."""

import contextlib
import os
from collections.abc import Iterator

from kernelgen.build.toolchain import child_environment
from kernelgen.child_python import WEAKENING
from kernelgen.hardware.device import usable_cores
from kernelgen.sandbox.environment import passed_on

# The supervisor, the oracle, the candidate, and one to spare.
_CORES_OF_A_TIMING = 4
# glibc takes no larger one: what is larger than this is mapped anew in every process alike.
_LARGEST_MMAP_THRESHOLD_BYTES = 32 << 20


def cores_aside() -> tuple[int, ...]:
    """Return cores that a file which is timed on a GPU does not need; none if there are few."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return cores[_CORES_OF_A_TIMING:] if len(cores) >= 2 * _CORES_OF_A_TIMING else ()


@contextlib.contextmanager
def on_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep this thread, and what it starts, to some cores; to those that it has if it is none."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def trusted_environment() -> dict[str, str]:
    """Return what only the oracle gets of this process's environment."""
    left_out = {*passed_on(os.environ), *WEAKENING}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def worker_environment() -> dict[str, str]:
    """Return the environment of the fork server, and so of every worker."""
    environment = child_environment(passed_on(os.environ))
    for name in WEAKENING:
        environment.pop(name, None)
    environment["OMP_NUM_THREADS"] = str(usable_cores())
    # Keep freed memory for the next call. Otherwise the C library's allocator gives large outputs
    # back to the kernel or not depending on the process's history, and page faults, which take
    # longer than the work, are timed in one process and not in the other.
    environment["MALLOC_MMAP_THRESHOLD_"] = str(_LARGEST_MMAP_THRESHOLD_BYTES)
    environment["MALLOC_TRIM_THRESHOLD_"] = str(1 << 40)
    return environment
