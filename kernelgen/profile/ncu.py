"""ncu, NVIDIA's Nsight Compute: where it is, how it is run, and what its failures mean.

By default NVIDIA's driver lets only administrators: processes with CAP_SYS_ADMIN, or CAP_PERFMON
from driver 565 on, in the machine's first user namespace (ERR_NVGPUCTRPERM in NVIDIA's "Development
Tools Solutions"). A contained process is in another user namespace and has given all capabilities
away, whoever started it. Where the driver is open to all, containment makes no difference: counters
are read through the device nodes, which a contained process has, and ncu speaks with the process
that it has started over local sockets, which stay within the containment that is around both.
"""

import contextlib
import os
import re
import subprocess
from pathlib import Path

import msgspec

from kernelgen.build.toolchain import TOOL_PLACES, find_cuda_tool
from kernelgen.child_python import python_command
from kernelgen.errors import ToolchainError
from kernelgen.grading.tools.one_call import CALLED
from kernelgen.grading.tools.workplace import Workplace, run_inside, showing, start_of
from kernelgen.profile.details import METRICS, errors, read_launches
from kernelgen.profile.record import Launch
from kernelgen.sandbox.contained import Ended

_NAME = "ncu"
# Where NVIDIA's own packages of it, which are not a toolkit's, put it.
_PACKAGES = Path("/opt/nvidia/nsight-compute")
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)
_VERSION_SECONDS = 60.0
_LOG = "ncu.log"
# Sections whose metrics ncu collects without rewriting the kernel. That would need more registers,
# so that blocks that wait for each other may no longer be resident together, and hang.
_SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "SchedulerStats",
    "WarpStateStats",
)  # fmt: skip


class Ncu(msgspec.Struct, frozen=True, kw_only=True):
    """An ncu: its path, and its version as it gives it."""

    path: Path
    version: str


def find_ncu() -> Ncu:
    """Return ncu: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda, /opt/nvidia.

    Raises:
        ToolchainError: there is none, or it does not run.
    """
    path = find_cuda_tool(_NAME) or _newest_package()
    if path is None:
        raise ToolchainError(
            f"no ncu was found (looked at {TOOL_PLACES}, {_PACKAGES}); install Nsight Compute, "
            "such as with: apt-get install cuda-nsight-compute-13-0 (NVIDIA's repository), or "
            "conda install -c nvidia nsight-compute"
        )
    try:
        done = subprocess.run(
            [str(path), "--version"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{path}: does not run: {error}; install it anew") from error
    match = _VERSION.search(done.stdout)
    return Ncu(path=path, version=match.group(1) if match else "of unknown version")


def collect(
    ncu: Ncu, most_launches: int, inside: Workplace
) -> tuple[tuple[Launch, ...], tuple[str, ...]]:
    """Run the profile host that `inside.folder` is prepared for under ncu.

    Args:
        ncu: which.
        most_launches: how many are profiled; those after them are not.
        inside: what holds ncu and the process that it starts.

    Returns:
        The launches, at least one, and the errors that ncu reported although there are some.

    Raises:
        ToolchainError: there are no results; the message says why and what to do.
    """
    environment = {**inside.environment, "LC_ALL": "C"}
    inside = msgspec.structs.replace(inside, environment=environment)
    (inside.folder / CALLED).unlink(missing_ok=True)
    # Profiled is what runs between cudaProfilerStart and cudaProfilerStop. Each kernel is run again
    # for every group of counters, with caches that were emptied; the clocks are left as they are.
    command = [
        str(ncu.path),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none"),
        *("--launch-count", str(most_launches)),
        *("--page", "details", "--print-units", "base", "--log-file", _LOG),
        *(option for section in _SECTIONS for option in ("--section", section)),
        *("--metrics", ",".join(METRICS.values())),
        *host_command(inside),
    ]
    ended = run_inside(command, showing(inside, *_folders(ncu.path)))
    log = start_of(inside.folder / _LOG)
    launches = read_launches(log)
    # Before there is a log, it writes what is wrong where everything else is printed.
    if not launches or not (inside.folder / CALLED).exists():
        raise ToolchainError(explain(f"{log}\n{ended.log}", ended, inside))
    return launches, errors(log)


def host_command(inside: Workplace) -> list[str]:
    """Return the command that calls the solution, with ncu around it or without."""
    return python_command("kernelgen.profile.profile_host", str(inside.folder.resolve()))


def explain(text: str, ended: Ended, inside: Workplace) -> str:
    """Return why a run gave no results, and what to do."""
    contained = inside.plan.level != "none"
    if ended.over:
        return (
            f"ncu was {ended.why}. Under it a solution takes more than by itself: choose a smaller "
            "--case, or --sandbox off, which sets no limit and gives the solution your rights"
        )
    if ended.code is None:
        return (
            f"ncu did not finish within {inside.deadline_s:g} s: it runs each kernel many times. "
            "Give it more with --timeout, fewer launches with --launches, or a smaller --case"
        )
    if "ERR_NVGPUCTRPERM" in text:
        sandbox = " with --sandbox off, which gives the solution your rights," if contained else ""
        return (
            "ncu: ERR_NVGPUCTRPERM: the driver lets only administrators read performance counters"
            f"{', and a contained process is none' if contained else ''}: run as root{sandbox}, in "
            "a container that was started with --cap-add=SYS_ADMIN, or have the driver loaded with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    said = "; ".join(errors(text))
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


def _newest_package() -> Path | None:
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = [path for path in _PACKAGES.glob("*/ncu") if os.access(path, os.X_OK)]

    def version(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.parent.name)]

    return max(found, key=version, default=None)
