"""compute-sanitizer: where it is, and how it is run on one small process of the candidate's."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import kernelgen
from kernelgen.build.toolchain import find_toolkit
from kernelgen.errors import ToolchainError, UserError
from kernelgen.grading.sanitizer_log import SanitizerLog, Tool, read_log
from kernelgen.sandbox.launch import contained_command
from kernelgen.sandbox.record import Plan

_NAME = "compute-sanitizer"
_MOST_REPORTS = 1000
_MOST_LOG_BYTES = 16 << 20
_MOST_OUTPUT_BYTES = 4096
_PACKAGE = Path(kernelgen.__file__).resolve().parent


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process that runs the candidate's code does so.

    Attributes:
        plan: what is put around it; its own scratch folder is not `folder`.
        folder: an existing one to run in, which it may write to, and which gets what it prints.
        environment: all of its variables.
        deadline_s: after it, the whole process group is killed.
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


def find_sanitizer(base: Mapping[str, str] | None = None) -> Path:
    """Return compute-sanitizer: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda.

    Raises:
        UserError: there is none.
    """
    environment = os.environ if base is None else base
    for folder in _folders(environment):
        found = shutil.which(_NAME, path=folder)
        if found is not None:
            return Path(found)
    raise UserError(
        "--sanitize: no compute-sanitizer was found (looked at CUDA_HOME, CUDA_PATH, PATH, beside "
        "nvcc, /usr/local/cuda); install the CUDA toolkit's, or leave --sanitize out"
    )


def _folders(environment: Mapping[str, str]) -> Iterator[str]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(name):
            yield str(Path(environment[name]) / "bin")
    yield environment.get("PATH", os.defpath)
    with contextlib.suppress(ToolchainError):
        toolkit = find_toolkit(environment)
        yield str(toolkit.nvcc.parent)
        yield str(toolkit.nvcc.resolve().parent)
    yield "/usr/local/cuda/bin"


def run_tool(
    sanitizer: Path, tool: Tool, command: Sequence[str], inside: Workplace
) -> tuple[SanitizerLog, Ended]:
    """Run a command under a tool; return what the tool found and how it ended.

    Args:
        sanitizer: the path of compute-sanitizer.
        tool: which of its tools.
        command: of the process that is looked at; its children are not.
        inside: what holds it; its folder also gets the tool's log.
    """
    log = inside.folder / f"{tool}.log"
    options = [
        # Without a folder: the tool gives a % in a path a meaning of its own.
        *("--tool", tool, "--log-file", log.name, "--target-processes", "application-only"),
        *("--print-limit", str(_MOST_REPORTS), "--show-backtrace", "device"),
        # How long it waits for the first CUDA call: a build may come before that.
        *("--launch-timeout", str(math.ceil(inside.deadline_s))),
    ]
    if tool == "memcheck":
        # torch asks the driver for things that may not be there: no error of the candidate's.
        options += ["--report-api-errors", "no"]
    shown = (*inside.plan.readable, str(sanitizer.resolve().parent))
    plan = msgspec.structs.replace(inside.plan, readable=shown)
    inside = msgspec.structs.replace(inside, plan=plan)
    ended = run_contained([str(sanitizer), *options, *command], inside)
    return read_log(tool, _start_of(log)), ended


def run_contained(command: Sequence[str], inside: Workplace) -> Ended:
    """Run a command that starts the candidate's code: the one place where that is contained."""
    folder = str(inside.folder.resolve())
    # It imports the grader's own modules, which a candidate of a usual run does not see.
    plan = msgspec.structs.replace(
        inside.plan,
        writable=(*inside.plan.writable, folder),
        readable=(*inside.plan.readable, str(_PACKAGE)),
    )
    with (inside.folder / "output.txt").open("wb+") as output:
        process = subprocess.Popen(
            contained_command(plan, folder, list(command)),
            cwd=_PACKAGE.parent,
            env=inside.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code: int | None = process.wait(inside.deadline_s)
        except subprocess.TimeoutExpired:
            exit_code = None
        finally:
            # Also after an end in time: what it started in its group ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = os.fstat(output.fileno()).st_size
        tail = os.pread(output.fileno(), _MOST_OUTPUT_BYTES, max(0, size - _MOST_OUTPUT_BYTES))
    return Ended(exit_code=exit_code, output=tail.decode("utf-8", errors="replace").strip())


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours in this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def _start_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return file.read(_MOST_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:  # the tool has not come so far; the caller says how it ended
        return ""
