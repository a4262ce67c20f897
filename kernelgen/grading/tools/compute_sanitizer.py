"""compute-sanitizer: where it is, and how it is run on one small process of the candidate's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelgen.build.cuda_tools import PLACES, find_cuda_tool
from kernelgen.errors import UserError
from kernelgen.grading.tools.contained_run import Ended, Workplace, run_contained, showing, start_of
from kernelgen.grading.tools.sanitizer_log import SanitizerLog, Tool, read_log

_NAME = "compute-sanitizer"
_MOST_REPORTS = 1000


def find_sanitizer(base: Mapping[str, str] | None = None) -> Path:
    """Return compute-sanitizer: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda.

    Raises:
        UserError: there is none.
    """
    found = find_cuda_tool(_NAME, base)
    if found is None:
        raise UserError(
            f"--sanitize: no {_NAME} was found (looked at {PLACES}); install the CUDA toolkit's, "
            "or leave --sanitize out"
        )
    return found


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
    command = [str(sanitizer), *options, *command]
    ended = run_contained(command, showing(inside, sanitizer.resolve().parent))
    return read_log(tool, start_of(log)), ended
