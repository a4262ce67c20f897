"""The environment of the fork server, and so of what it starts."""

import os

from kernelgen.build.toolchain import child_environment
from kernelgen.child_python import WEAKENING
from kernelgen.hardware.device import usable_cores
from kernelgen.sandbox.environment import passed_on

# glibc takes no larger one: what is larger than this is mapped anew in every process alike.
_LARGEST_MMAP_THRESHOLD_BYTES = 32 << 20


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
