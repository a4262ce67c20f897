"""Status and reason of a candidate's failure, from exit codes, exceptions and limits."""

import re
import signal
from pathlib import PurePath

from kernelgen.build.diagnostics import explain_build_error
from kernelgen.grading.supervisor.servers import WorkerGone
from kernelgen.grading.verdict import Judged, Owner, Status
from kernelgen.grading.wire.messages import CandidateFailed
from kernelgen.sandbox.watch import OverLimit
from kernelgen.solution.file import SolutionFile

_MESSAGE_LINES = 12
# How Python's fault handler lists frames, and the extension modules after them.
_GRADERS_FRAME = re.compile(
    r"""\s*File\ "([^"]*/kernelgen/grading/|<frozen\ |[^"]*/torch/nn/modules/module\.py)
    | Extension\ modules:\ """,
    re.VERBOSE,
)
_WAITS_FOR_DEVICE = re.compile(r'/host\.py", line \d+ in _wait$', re.MULTILINE)
_SIGNAL_HINTS = {
    signal.SIGSEGV: "memory was accessed that is not the process's own",
    signal.SIGBUS: "memory was accessed that is not there",
    signal.SIGABRT: "a C or C++ assertion or an uncaught C++ exception",
    signal.SIGILL: "an instruction that this processor does not have",
    signal.SIGFPE: "an integer was divided by zero",
    signal.SIGXFSZ: "it wrote a file, or printed, more than it may",
    signal.SIGKILL: "killed from outside; the kernel does this when memory runs out",
}


def judge_over_limit(over: OverLimit, during: str) -> Judged:
    """Return the verdict on a candidate that uses more than it may."""
    if over.what == "memory":
        return Judged(Status.OUT_OF_MEMORY, f"memory ran out {during}: {over}", Owner.CANDIDATE)
    return Judged(Status.CRASHED, f"ended {during}: {over}")


def explain_exit(exit_code: int) -> str:
    """Say how a process ended, from its exit code as subprocess gives it."""
    if exit_code >= 0:
        return f"it exited with code {exit_code} without being asked to"
    try:
        name = signal.Signals(-exit_code)
    except ValueError:
        return f"signal {-exit_code}"
    hint = _SIGNAL_HINTS.get(name)
    return f"{name.name} ({hint})" if hint else name.name


def explain_end(gone: WorkerGone) -> str:
    """Say how a worker ended."""
    if gone.by_us:
        return "it closed its connection to the grader and was killed"
    return explain_exit(gone.exit_code)


def last_place(log: str, solution: SolutionFile) -> str:
    """Return where in the candidate's file a crash or a hang is, as the fault handler wrote it."""
    name = re.escape(solution.name)
    match = re.search(rf'File "[^"\n]*{name}", line (\d{{1,9}}) in (\S+)', log)
    if match is None:
        waits = "\n  the Python code has returned; the GPU work that it started does not end"
        return waits if _WAITS_FOR_DEVICE.search(log) else ""
    number = int(match.group(1))
    lines = solution.text.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"\n  {solution.path}:{number}, in {match.group(2)}: {text}"


def own_words(log: str) -> str:
    """Return a candidate's log without what the fault handler says of the grader's own frames."""
    lines = [line for line in log.splitlines() if not _GRADERS_FRAME.match(line)]
    return "\n".join(lines).strip()


def explain_failure(
    failed: CandidateFailed, solution: SolutionFile, during: str, printed: str
) -> tuple[Status, str]:
    """Return the status and the reason of a candidate that raised.

    `during` completes "the process ended ..."; `printed` is what it had printed, if it failed while
    building.
    """
    place = f"{solution.path}:{failed.line}: " if failed.line is not None else ""
    if failed.out_of_memory:
        return Status.OUT_OF_MEMORY, f"{place}memory ran out {during}: {_brief(failed.message)}"
    if failed.in_build:
        reason = _build_reason(failed, solution, printed)
        return Status.BUILD_ERROR, reason + _left_beside(failed.message, solution)
    lines = [f"{place}{failed.type_name} {during}: {_brief(failed.message)}"]
    lines += [f"  {frame}" for frame in failed.trace[-3:]]
    return Status.RUNTIME_ERROR, "\n".join(lines) + _left_beside(failed.message, solution)


def _left_beside(message: str, solution: SolutionFile) -> str:
    """Return the rule about files beside a candidate, if it looked for one; else ""."""
    missing = re.search(r"No such file or directory: '([^']+)'", message)
    path = solution.path.parent / PurePath(missing[1]).name if missing else None
    rule = "a candidate is one file; put the text into it, such as load_inline's cpp_sources"
    return f"\n{path} is not there in grading: {rule}" if path and path.exists() else ""


def _build_reason(failed: CandidateFailed, solution: SolutionFile, printed: str) -> str:
    if failed.type_name == "TypeError":
        reason = f"{solution.path}:{failed.line}: {_brief(failed.message)}"
        if "cpp_sources" in failed.message:
            reason += (
                "\nload_inline needs cpp_sources beside cuda_sources: the declarations of the "
                'functions that Python calls, or "" if there are none'
            )
        return reason
    explained = explain_build_error(f"{failed.message}\n{printed}", failed.generated, solution)
    return explained or f"{failed.type_name}: {_brief(failed.message)}"


def _brief(message: str) -> str:
    lines = message.strip().splitlines() or ["(no message)"]
    kept = lines[:_MESSAGE_LINES]
    if len(lines) > len(kept):
        kept.append(f"... and {len(lines) - len(kept)} more lines")
    return "\n".join(kept)
