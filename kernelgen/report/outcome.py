"""The outcome of a whole run: its exit code, and one line for a person."""

from collections import Counter
from collections.abc import Collection, Iterable

from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.report.printable import printable, printable_lines

# A candidate's failure is certain and running again will not mend it; a broken problem needs a
# person; only the last is worth another try. A mixed run returns the first of these that it holds.
CODE_BY_OWNER = {
    Owner.CANDIDATE: ExitCode.CANDIDATE_FAILED,
    Owner.PROBLEM: ExitCode.USAGE,
    Owner.GRADER: ExitCode.GRADER_FAULT,
}


def failure_lines(status: Status, reason: str) -> list[str]:
    """Return how a solution fails, as a line and those of the reason that follow, indented."""
    first, *others = printable_lines(reason) or [""]
    return [f"{status.value}: {first}", *(f"  {line}" for line in others)]


def exit_code(run: Run) -> ExitCode:
    """Return what `kernelgen grade` returns to the shell; docs/statuses.md explains the order.

    A run without verdicts is a grader's fault: nothing was graded, which is never a pass.
    """
    if not run.verdicts:
        return ExitCode.GRADER_FAULT
    return code_of_failures({verdict.owner for verdict in run.verdicts if not verdict.passed})


def code_of_failures(owners: Collection[Owner]) -> ExitCode:
    """Return the exit code of failures that are these owners' doing; of none, OK."""
    return next((code for owner, code in CODE_BY_OWNER.items() if owner in owners), ExitCode.OK)


def title(run: Run) -> str:
    """Return what a run came to, such as `1 of 3 passed on NVIDIA H200`."""
    passed = sum(verdict.passed for verdict in run.verdicts)
    return f"{passed} of {len(run.verdicts)} passed{place(run.verdicts)}"


def place(verdicts: Iterable[Verdict]) -> str:
    """Return where verdicts come from, such as ` on NVIDIA H200`, or ""."""
    devices = dict.fromkeys(verdict.device for verdict in verdicts if verdict.device)
    return f" on {' and '.join(map(printable, devices))}" if devices else ""


def summary(run: Run) -> str:
    """Return the closing line, such as `1 of 3 passed on NVIDIA H200 (2 TIMEOUT)`."""
    failures = Counter(verdict.status.value for verdict in run.verdicts if not verdict.passed)
    counts = ", ".join(f"{count} {status}" for status, count in failures.items())
    return f"{title(run)} ({counts})" if counts else title(run)
