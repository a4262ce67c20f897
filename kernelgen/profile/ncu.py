"""ncu, NVIDIA's Nsight Compute: where it is, how it is run, and what its failures mean.

By default NVIDIA's driver lets only administrators: processes with CAP_SYS_ADMIN, or CAP_PERFMON
from driver 565 on, in the machine's first user namespace (ERR_NVGPUCTRPERM in NVIDIA's "Development
Tools Solutions"). A contained process is in another user namespace and has given all capabilities
away, whoever started it. Where the driver is open to all, containment makes no difference: counters
are read through the device nodes, which a contained process has, and ncu speaks with the process
that it has started over local sockets, which stay within the containment that is around both.
"""

import re
from pathlib import Path

import msgspec

from kernelgen.build.toolchain import TOOL_PLACES, find_cuda_tool
from kernelgen.child_python import python_command
from kernelgen.errors import ToolchainError
from kernelgen.grading.tools.one_call import CALLED
from kernelgen.grading.tools.workplace import Workplace, run_inside, showing, start_of
from kernelgen.sandbox.contained import Ended

_LOG = "ncu.log"
# Sections whose metrics ncu collects without rewriting the kernel. That would need more registers,
# so that blocks that wait for each other may no longer be resident together, and hang.
_SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "SchedulerStats",
    "WarpStateStats",
)  # fmt: skip
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_COUNT = re.compile(rf"^ +({re.escape(_READ)}|{re.escape(_WRITTEN)}) +(.*\S)", re.MULTILINE)
# ncu of different years calls its base unit one or the other.
_BYTES = re.compile(r"(?:byte|B) +(\d[\d,]*(?:\.\d+)?)")
_ERROR = re.compile(r"^==ERROR== +(.*\S)", re.MULTILINE)


def find_ncu() -> Path:
    """Return ncu: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda.

    Raises:
        ToolchainError: there is none.
    """
    path = find_cuda_tool("ncu")
    if path is None:
        raise ToolchainError(
            f"no ncu was found (looked at {TOOL_PLACES}); install Nsight Compute, such as with: "
            "apt-get install cuda-nsight-compute-13-0 (NVIDIA's repository), or conda install -c "
            "nvidia nsight-compute, and have it on PATH"
        )
    return path


def collect(ncu: Path, most_launches: int, inside: Workplace) -> str:
    """Run the profile host that `inside.folder` is prepared for under ncu; return ncu's log.

    Args:
        ncu: which.
        most_launches: how many are profiled; those after them are not.
        inside: what holds ncu and the process that it starts.

    Raises:
        ToolchainError: it has details of no launch; the message says why and what to do.
    """
    environment = {**inside.environment, "LC_ALL": "C"}
    inside = msgspec.structs.replace(inside, environment=environment)
    (inside.folder / CALLED).unlink(missing_ok=True)
    # Profiled is what runs between cudaProfilerStart and cudaProfilerStop. Each kernel is run again
    # for every group of counters, with caches that were emptied; the clocks are left as they are.
    command = [
        str(ncu),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none"),
        *("--launch-count", str(most_launches)),
        *("--page", "details", "--print-units", "base", "--log-file", _LOG),
        *(option for section in _SECTIONS for option in ("--section", section)),
        *("--metrics", f"{_READ},{_WRITTEN}"),
        *host_command(inside),
    ]
    ended = run_inside(command, showing(inside, *_folders(ncu)))
    log = start_of(inside.folder / _LOG)
    # Before there is a log, it writes what is wrong where everything else is printed.
    if not launches_in(log) or not (inside.folder / CALLED).exists():
        raise ToolchainError(explain(f"{log}\n{ended.log}", ended, inside))
    return log


def launches_in(log: str) -> int:
    """Return of how many launches a log of ncu's has details."""
    return sum(name == _READ for name, _ in _COUNT.findall(log))


def dram_bytes_in(log: str) -> float | None:
    """Return what all launches read and wrote; None if a count is missing or in another unit."""
    counts = [_BYTES.fullmatch(count) for _, count in _COUNT.findall(log)]
    known = [float(count[1].replace(",", "")) for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def host_command(inside: Workplace) -> list[str]:
    """Return the command that calls the solution, with ncu around it or without."""
    return python_command("kernelgen.profile.profile_host", str(inside.folder.resolve()))


def explain(text: str, ended: Ended, inside: Workplace) -> str:
    """Return why a run gave no results, and what to do."""
    contained = inside.plan.level != "none"
    if ended.code is None:
        return (
            f"ncu was {ended.why}. It runs each kernel many times and keeps copies of its memory: "
            "choose fewer --launches, a smaller --case or a longer --timeout, or --sandbox off, "
            "which sets no limit to memory and gives the solution your rights"
        )
    if "ERR_NVGPUCTRPERM" in text:
        sandbox = " with --sandbox off, which gives the solution your rights," if contained else ""
        return (
            "ncu: ERR_NVGPUCTRPERM: the driver lets only administrators read performance counters"
            f"{', and a contained process is none' if contained else ''}: run as root{sandbox}, in "
            "a container that was started with --cap-add=SYS_ADMIN, or have the driver loaded with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    said = "; ".join(dict.fromkeys(_ERROR.findall(text)))
    if (inside.folder / CALLED).exists():
        nothing = (
            "it saw no kernel in a call of forward: that computes nothing on the GPU, or in a "
            "process of its own, or it returns what an earlier call has computed"
        )
        return f"ncu: {said or nothing}"
    last = ended.log.splitlines()[-1:] or ["it printed nothing"]
    hint = "; if containment is in its way, --sandbox off does without" if contained else ""
    return f"under ncu, forward did not return, though it does without: {said or last[0]}{hint}"


def _folders(path: Path) -> list[Path]:
    """Return what of the file system ncu needs to run: its own folders.

    The program is two folders below the one that also has its sections. A script that starts it may
    be in a bin folder, and the whole in `nsight-compute-VERSION` beside that, as in a toolkit.
    """
    resolved = path.resolve()
    found = [path.parent, resolved.parent, *path.parent.parent.glob("nsight-compute*")]
    return found + [folder for folder in resolved.parents[1:3] if (folder / "sections").is_dir()]
