"""How much of the machine a candidate may use up: what is usual, and how the kernel is told."""

import contextlib
import os
import resource
from pathlib import Path

from kernelgen.sandbox.record import Limits

_GIBIBYTE = 1 << 30
_SCRATCH_BYTES = 4 * _GIBIBYTE
# Together they are the whole: what is written is memory too.
_SCRATCH_SHARE, _MEMORY_SHARE = 0.2, 0.8
# nvcc, ninja and torch start threads by the number of cores; a fork bomb knows no number.
_PROCESSES, _PROCESSES_A_CORE = 512, 64
_OPEN_FILES = 65536
# nvcc's and gcc's text of one source with torch's headers has some 20 MB.
_LARGEST_BUILT_BYTES = 256 << 20
_CONTROL_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_PID_MAX = Path("/proc/sys/kernel/pid_max")


def usual_limits() -> Limits:
    """Return the limits that suit this machine as it is now."""
    free_bytes = available_bytes()
    scratch_bytes = min(_SCRATCH_BYTES, int(free_bytes * _SCRATCH_SHARE))
    cores = os.cpu_count() or 1
    return Limits(
        scratch_bytes=scratch_bytes,
        file_bytes=scratch_bytes,
        memory_bytes=int(free_bytes * _MEMORY_SHARE),
        processes=_PROCESSES + _PROCESSES_A_CORE * cores,
        open_files=_OPEN_FILES,
    )


def small_file_limit() -> str:
    """Return what a shell with too small a limit allows a file, and how to raise it; else ""."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most == resource.RLIM_INFINITY or most >= _LARGEST_BUILT_BYTES:
        return ""
    return (
        f"the shell allows a file {most >> 10} KiB (ulimit -f), and compilers may need "
        f"{_LARGEST_BUILT_BYTES >> 20} MiB; raise it, such as by `ulimit -f unlimited`"
    )


def available_bytes() -> int:
    """Return the memory that is free here: the machine's, or less if a control group says so."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free_bytes = int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024
    for folder, most, used in _CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):
            left = int((folder / most).read_text()) - int((folder / used).read_text())
            # Pages of files count as used until somebody else needs the memory.
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            left += sum(int(stat.get(f"{age}_file", 0)) for age in ("active", "inactive"))
            free_bytes = min(free_bytes, max(left, 0))
    return free_bytes


def volunteer_to_be_killed() -> None:
    """Have the kernel take this process first when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_namespace(limits: Limits) -> None:
    """Limit the processes of a new PID namespace, and forbid new user namespaces in this one.

    RLIMIT_NPROC does not hold root back. Kernels before 6.14 have no pid_max of a namespace's own:
    there, for root, the supervisor's watch is what is left.
    """
    # Anywhere else than in the first process of a new table, the write would be the machine's.
    if os.getpid() == 1 and _has_own_pid_max():
        with contextlib.suppress(OSError):
            _PID_MAX.write_text(str(limits.processes), encoding="ascii")
    with contextlib.suppress(OSError):
        Path("/proc/sys/user/max_user_namespaces").write_text("0", encoding="ascii")


def _has_own_pid_max() -> bool:
    # On an older kernel the write would be the whole machine's, if it were permitted.
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(c for c in minor if c.isdigit()) or 0)) >= (6, 14)


def limit_process(limits: Limits, *, own_namespace: bool) -> None:
    """Set this process's limits, and those of all that it starts.

    In a user namespace of its own, the user's other processes do not count.
    """
    processes = limits.processes if own_namespace else limits.processes + _tasks_of_user()
    for which, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, processes),
    ):
        _, most = resource.getrlimit(which)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(which, (value, value))


def _tasks_of_user() -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
    return count
