"""`grade --sanitize`: a candidate's kernels under compute-sanitizer, on one small case.

It is help for those who look for a bug, not evidence against those who hide one: the candidate's
code runs in the process that is looked at.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kernelgen.build.toolchain import TOOL_PLACES, find_cuda_tool
from kernelgen.child_python import python_command
from kernelgen.errors import UserError
from kernelgen.grading.tools.one_call import CALLED, write_request
from kernelgen.grading.tools.sanitizer_log import TOOLS, SanitizerLog, Tool, read_log
from kernelgen.grading.tools.workplace import Workplace, run_inside, showing, start_of
from kernelgen.grading.verdict import SanitizerFinding, SanitizerRecord
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.sandbox.contained import Ended
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.lending import construction_source

_NAME = "compute-sanitizer"
_DEVICES = ("cuda",)
_MOST_REPORTS = 1000
_MOST_LINES = 10
# racecheck does not know that a bulk copy's barrier orders it, and calls its use a race.
_BULK_COPIES = ("cp.async.bulk", "cp_async_bulk", "memcpy_async")
# Races among libraries' own threads are not the candidate's.
_LIBRARIES = ("at::", "void at::", "at_cuda_detail::", "void at_cuda_detail::", "cub::",
              "void cub::", "cublas", "void cublas", "cudnn", "void cudnn", "cutlass",
              "void cutlass", "sm80_", "sm90_", "sm100_")  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of sanitizing.

    Attributes:
        record: for the verdict.
        reason: lists what fails the candidate, a line a kind and kernel; "" if nothing does.
        warnings: what does not.
    """

    record: SanitizerRecord
    reason: str
    warnings: tuple[str, ...]


def can_sanitize(device: Device) -> bool:
    """Whether compute-sanitizer has anything to look at on a device."""
    return device in _DEVICES


def find_sanitizer(environment: Mapping[str, str] = os.environ) -> Path:
    """Return compute-sanitizer: from CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda.

    Raises:
        UserError: there is none.
    """
    found = find_cuda_tool(_NAME, environment)
    if found is None:
        raise UserError(
            f"--sanitize: no {_NAME} was found (looked at {TOOL_PLACES}); install the CUDA "
            "toolkit's, or leave --sanitize out"
        )
    return found


def sanitize(
    solution: SolutionFile, problem: Problem, case: Case, device: Device, inside: Workplace
) -> Outcome:
    """Run each tool on one call of a candidate.

    Each tool has a process of its own. The environment adds to that of every worker;
    TORCH_EXTENSIONS_DIR lets it load what has been built already.

    Raises:
        UserError: compute-sanitizer is not there.
    """
    sanitizer = find_sanitizer()
    needed = construction_source(problem.reference_source(case, device))
    write_request(solution, problem, needed, device, inside.folder)
    command = python_command("kernelgen.grading.tools.one_call", str(inside.folder.resolve()))
    # Each tensor an allocation of its own: torch's cache would hide what is written beyond one.
    environment = {**inside.environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    inside = msgspec.structs.replace(inside, environment=environment)
    called = inside.folder / CALLED
    findings: list[SanitizerFinding] = []
    ran: list[str] = []
    warnings: list[str] = []
    for tool in TOOLS:
        called.unlink(missing_ok=True)
        log, ended = _run_tool(sanitizer, tool, command, inside)
        findings += log.findings
        why = _why_incomplete(log, ended, called=called.exists())
        if log.findings or not why:
            ran.append(tool)
        else:
            warnings.append(f"{tool} did not look at the whole of a call: {why}")
    excuses = [(finding, _excuse(finding, solution)) for finding in findings]
    serious = [finding for finding, why in excuses if finding.severity == "error" and not why]
    return Outcome(
        record=SanitizerRecord(case=case.name, tools=tuple(ran), findings=tuple(findings)),
        reason=_reason(case, serious),
        warnings=(*warnings, *(in_words(one) + why for one, why in excuses if one not in serious)),
    )


def in_words(finding: SanitizerFinding) -> str:
    """Return one line: the tool, what, in which kernel, how often, and where first."""
    times = "once" if finding.count == 1 else f"{finding.count} times"
    kernel = f" in {finding.kernel}" if finding.kernel else ""
    first = f"; first: {finding.first}" if finding.first else ""
    return f"{finding.tool}: {finding.what}{kernel}, {times}{first}"


def _run_tool(
    sanitizer: Path, tool: Tool, command: Sequence[str], inside: Workplace
) -> tuple[SanitizerLog, Ended]:
    """Run a command under a tool, without its children; the tool's log goes to the same folder."""
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
    else:
        # A report a race, not one for each of its threads.
        options += ["--racecheck-report", "analysis"]
    command = [str(sanitizer), *options, *command]
    ended = run_inside(command, showing(inside, sanitizer.resolve().parent))
    return read_log(tool, start_of(log)), ended


def _why_incomplete(log: SanitizerLog, ended: Ended, *, called: bool) -> str:
    """Return why a run without findings says nothing, or ""."""
    if ended.over:
        return f"{ended.why} (a program takes more under it; --sandbox off sets no limit)"
    if ended.code is None:
        return "it was not finished in time; --build-timeout and --call-timeout give it more"
    if log.complete and called and ended.code == 0:
        return ""
    if ended.code == 0 and not called:
        return log.trouble or "the process left before forward had returned"
    last = ended.log.splitlines()[-1:] or ["it printed nothing"]
    return f"exit code {ended.code}; {log.trouble or last[0].strip()}"


def _excuse(finding: SanitizerFinding, solution: SolutionFile) -> str:
    """Return why an error is not held against the candidate, or ""."""
    if finding.severity != "error" or finding.tool != "racecheck":
        return ""
    if finding.kernel.startswith(_LIBRARIES):
        return " (in a library's kernel: not held against the candidate)"
    if any(word in solution.text for word in _BULK_COPIES):
        return " (not held against the candidate: racecheck takes bulk copies for races)"
    return ""


def _reason(case: Case, serious: list[SanitizerFinding]) -> str:
    if not serious:
        return ""
    lines = [f"case {case.name}, under compute-sanitizer:"]
    lines += [f"  {in_words(finding)}" for finding in serious[:_MOST_LINES]]
    if len(serious) > _MOST_LINES:
        lines.append(f"  and {len(serious) - _MOST_LINES} more kinds, which --json lists")
    if not any(".cu:" in finding.first for finding in serious):
        lines.append("  build with -lineinfo to get the lines of the source")
    return "\n".join(lines)
