"""Where NVIDIA's tools run the candidate's code, contained, beside the three processes of grading.

compute-sanitizer and ncu start the process that they look at themselves, so that containment goes
around both.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

import kernelgen
from kernelgen.child_python import python_path
from kernelgen.grading.launch import worker_environment
from kernelgen.sandbox.contained import Command, Ended, run_contained
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan

_MOST_LOG_BYTES = 16 << 20
_MOST_PRINTED = 4096
_PACKAGE = Path(kernelgen.__file__).resolve().parent


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process that runs the candidate's code does so.

    Attributes:
        plan: what is put around it; its own scratch folder is not `folder`.
        folder: an existing one to run in, which it may write to.
        environment: variables besides those of every worker.
        deadline_s: after it, all that was started is killed.
    """

    plan: Plan
    folder: Path
    environment: dict[str, str]
    deadline_s: float


def showing(inside: Workplace, *folders: Path) -> Workplace:
    """Return a workplace from which these folders can be read as well."""
    readable = (*inside.plan.readable, *dict.fromkeys(map(str, folders)))
    plan = msgspec.structs.replace(inside.plan, readable=readable)
    return msgspec.structs.replace(inside, plan=plan)


def run_inside(words: Sequence[str], inside: Workplace) -> Ended:
    """Run a command that starts the candidate's code: the one place where that is contained.

    What is temporary goes into the workplace's folder, and modules of ours are found.

    Returns:
        How it ended, with the end of what it printed.
    """
    folder, limits = str(inside.folder.resolve()), inside.plan.limits
    full = {**worker_environment(), "TMPDIR": folder, "HOME": folder, **inside.environment}
    if limits is not None:
        # A tool keeps copies of what kernels overwrite and shadows of what they touch: a multiple
        # of what an honest candidate takes by itself. So it may have all that suits this machine,
        # also where the candidate may not.
        memory_bytes = max(limits.memory_bytes, usual_limits().memory_bytes)
        limits = msgspec.structs.replace(limits, memory_bytes=memory_bytes)
    # It imports the grader's own modules, which a candidate of a usual run does not see.
    plan = msgspec.structs.replace(
        inside.plan,
        limits=limits,
        writable=(*inside.plan.writable, folder),
        readable=(*inside.plan.readable, str(_PACKAGE)),
    )
    command = Command(
        words=list(words),
        plan=plan,
        environment={**full, "PYTHONPATH": python_path(full)},
        timeout_s=inside.deadline_s,
    )
    ended = run_contained(command, folder)
    return msgspec.structs.replace(ended, log=ended.log[-_MOST_PRINTED:].strip())


def start_of(log: Path) -> str:
    """Return what a tool has written to its log, "" if it has not come so far."""
    try:
        with log.open("rb") as file:
            return file.read(_MOST_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
