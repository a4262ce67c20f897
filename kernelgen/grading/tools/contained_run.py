"""A program that starts the candidate's code, run contained beside the three processes of grading.

NVIDIA's tools are such programs: compute-sanitizer, and ncu. They start the process that they look
at themselves, so that containment goes around both.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

import kernelgen
from kernelgen.child_python import python_path
from kernelgen.grading.launch import worker_environment
from kernelgen.sandbox.contained import guarded
from kernelgen.sandbox.launch import contained_command
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.tree import processes_below

_MOST_LOG_BYTES = 16 << 20
_MOST_OUTPUT_BYTES = 4096
_PACKAGE = Path(kernelgen.__file__).resolve().parent


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process that runs the candidate's code does so.

    Attributes:
        plan: what is put around it; its own scratch folder is not `folder`.
        folder: an existing one to run in, which it may write to, and which gets what it prints.
        environment: all of its variables.
        deadline_s: after it, all that was started is killed.
    """

    plan: Plan
    folder: Path
    environment: dict[str, str]
    deadline_s: float


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a contained process ended.

    Attributes:
        exit_code: as subprocess gives it; None if it was killed at its deadline.
        output: the end of what it printed.
    """

    exit_code: int | None
    output: str


def showing(inside: Workplace, *folders: Path) -> Workplace:
    """Return a workplace from which these folders can be read as well."""
    readable = (*inside.plan.readable, *dict.fromkeys(map(str, folders)))
    plan = msgspec.structs.replace(inside.plan, readable=readable)
    return msgspec.structs.replace(inside, plan=plan)


def tool_environment(inside: Workplace) -> dict[str, str]:
    """Return the variables of a tool and of the process that it starts.

    They are those of every worker, with the workplace's own added; what is temporary goes into its
    folder, and modules of ours are found.
    """
    folder = str(inside.folder.resolve())
    full = {**worker_environment(), "TMPDIR": folder, "HOME": folder, **inside.environment}
    return {**full, "PYTHONPATH": python_path(full)}


def run_contained(command: Sequence[str], inside: Workplace) -> Ended:
    """Run a command that starts the candidate's code: the one place where that is contained."""
    folder = str(inside.folder.resolve())
    # It imports the grader's own modules, which a candidate of a usual run does not see.
    plan = msgspec.structs.replace(
        inside.plan,
        writable=(*inside.plan.writable, folder),
        readable=(*inside.plan.readable, str(_PACKAGE)),
    )
    whole = contained_command(plan, folder, list(command))
    with (inside.folder / "output.txt").open("wb+") as output:
        with guarded(whole, inside.environment, output, output) as process:
            try:
                exit_code: int | None = process.wait(inside.deadline_s)
            except subprocess.TimeoutExpired:
                exit_code = None
            finally:
                _end(process)
        size = os.fstat(output.fileno()).st_size
        tail = os.pread(output.fileno(), _MOST_OUTPUT_BYTES, max(0, size - _MOST_OUTPUT_BYTES))
    return Ended(exit_code=exit_code, output=tail.decode("utf-8", errors="replace").strip())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what still runs, also after an end in time: what it started in its group ends with it.

    A tool may give the process that it starts a group of its own: while the tool lives, that one is
    found below it.
    """
    below = processes_below([process.pid]) if process.poll() is None else []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def start_of(log: Path, most_bytes: int = _MOST_LOG_BYTES) -> str:
    """Return what a tool has written to its log, "" if it has not come so far."""
    try:
        with log.open("rb") as file:
            return file.read(most_bytes).decode("utf-8", errors="replace")
    except OSError:
        return ""
