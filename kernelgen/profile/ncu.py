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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from kernelgen.build.toolchain import TOOL_PLACES, find_cuda_tool
from kernelgen.child_python import python_command
from kernelgen.errors import ToolchainError
from kernelgen.grading.tools.one_call import CALLED
from kernelgen.grading.tools.workplace import Workplace, run_inside, showing, start_of
from kernelgen.profile.metrics import SECTIONS
from kernelgen.profile.ncu_output import errors, read_launches, unknown_metrics
from kernelgen.profile.profile_host import FAILED
from kernelgen.profile.record import KernelProfile
from kernelgen.sandbox.contained import Ended

_NAME = "ncu"
# Where NVIDIA's own packages of it, which are not a toolkit's, put it.
_PACKAGES = Path("/opt/nvidia/nsight-compute")
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)
_VERSION_SECONDS = 60.0
_LOG = "ncu.log"
# Some 120 rows a launch, each with the kernel's name, which torch's are 2000 characters of.
_MOST_LOG_BYTES = 256 << 20
# Should ncu name the metrics that it does not know one at a time.
_MOST_ROUNDS = 6
# A part of ncu's own words -> what to do; the first that fits.
_MENDS = (
    ("driver resource was unavailable", "another tool holds the counters, such as DCGM: pause it"),
    ("not compatible with Nsight Compute", "install an ncu that fits the driver"),
    ("failed to connect to the CUDA driver", "no driver was found: libcuda.so.1 has to be there"),
    ("unrecognised option", "install another version; the options of 2024.1 are known to fit"),
    ("not supported on the underlying platform", "ncu does not know this device; install a newer"),
)


class Ncu(msgspec.Struct, frozen=True, kw_only=True):
    """An ncu: its path, and its version as it gives it."""

    path: Path
    version: str


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a run under ncu gave.

    Attributes:
        launches: each by itself, in the order in which they ran; at least one.
        unavailable: metrics that it did not know.
        complaints: errors that it reported although there are results.
    """

    launches: tuple[KernelProfile, ...]
    unavailable: tuple[str, ...]
    complaints: tuple[str, ...]


def find_ncu(base: Mapping[str, str] | None = None) -> Ncu:
    """Return ncu: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda, /opt/nvidia.

    Raises:
        ToolchainError: there is none, or it does not run.
    """
    path = find_cuda_tool(_NAME, base) or _newest_package()
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
    ncu: Ncu,
    metrics: Sequence[str],
    most_launches: int,
    inside: Workplace,
    again: Callable[[int], None],
) -> Collected:
    """Run the profile host that `inside.folder` is prepared for under ncu.

    What ncu does not know is left out, and the rest is asked for again.

    Args:
        ncu: which.
        metrics: to be collected, the one that has to be there first.
        most_launches: how many are profiled; those after them are not.
        inside: what holds ncu and the process that it starts.
        again: told how many metrics were left out when it has to start again.

    Raises:
        ToolchainError: there are no results; the message says why and what to do.
        KernelgenFault: its report cannot be read.
    """
    environment = {**inside.environment, "LC_ALL": "C"}
    inside = msgspec.structs.replace(inside, environment=environment)
    inside = showing(inside, *_folders(ncu.path))
    unavailable: list[str] = []
    for _ in range(_MOST_ROUNDS):
        asked = [name for name in metrics if name not in unavailable]
        text, ended = _run(ncu, asked, most_launches, inside)
        unknown = [name for name in unknown_metrics(text) if name in asked]
        if not unknown or metrics[0] in unknown:
            break
        unavailable += unknown
        again(len(unavailable))
    launches = read_launches(text)
    if not launches or not (inside.folder / CALLED).exists():
        raise ToolchainError(explain(text, ended, inside))
    return Collected(launches=launches, unavailable=tuple(unavailable), complaints=errors(text))


def _run(
    ncu: Ncu, metrics: Sequence[str], most_launches: int, inside: Workplace
) -> tuple[str, Ended]:
    for name in (_LOG, CALLED, FAILED):
        (inside.folder / name).unlink(missing_ok=True)
    # Profiled is what runs between cudaProfilerStart and cudaProfilerStop. Each kernel is run again
    # for every group of counters, with caches that were emptied; the clocks are left as they are.
    command = [
        str(ncu.path),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none"),
        *("--launch-count", str(most_launches)),
        *("--csv", "--page", "details", "--print-units", "base", "--log-file", _LOG),
        *(option for section in SECTIONS for option in ("--section", section)),
        *("--metrics", ",".join(metrics)),
        *python_command("kernelgen.profile.profile_host", "profile", str(inside.folder.resolve())),
    ]
    ended = run_inside(command, inside)
    # Before there is a log, it writes what is wrong where everything else is printed.
    return f"{start_of(inside.folder / _LOG, _MOST_LOG_BYTES)}\n{ended.log}", ended


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
    said = errors(text)
    if "ERR_NVGPUCTRPERM" in text:
        sandbox = " with --sandbox off, which gives the solution your rights," if contained else ""
        return (
            "ncu: ERR_NVGPUCTRPERM: the driver lets only administrators read performance counters"
            f"{', and a contained process is none' if contained else ''}: run as root{sandbox}, in "
            "a container that was started with --cap-add=SYS_ADMIN, or have the driver loaded with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    for part, mend in _MENDS:
        if part in text:
            words = next((line for line in said if part in line), part)
            return f"ncu: {words.rstrip('.')}; {mend}"
    if (inside.folder / CALLED).exists():
        return (
            "ncu saw no kernel in a call of forward: it computes nothing on the GPU, or in a "
            "process of its own, or it returns what an earlier call has computed"
        )
    last = ended.log.splitlines()[-1:] or ["it printed nothing"]
    words = "; ".join(said) or last[0]
    hint = "; if containment is in its way, --sandbox off does without" if contained else ""
    return f"under ncu, forward did not return, though it does without: {words}{hint}"


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
