"""The solution run without ncu first: what fails here is its own doing, and not the tool's."""

from __future__ import annotations

import signal

import msgspec

from kernelgen.child_python import python_command
from kernelgen.grading.judged import Judged
from kernelgen.grading.supervisor.explain import (
    explain_exit,
    explain_failure,
    last_place,
    own_words,
)
from kernelgen.grading.tools.contained_run import (
    Ended,
    Workplace,
    run_contained,
    tool_environment,
)
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import CandidateFailed
from kernelgen.profile.profile_host import FACTS, FAILED
from kernelgen.profile.record import Facts
from kernelgen.sandbox.record import NOT_CONTAINED, refuse_uncontained
from kernelgen.solution.file import SolutionFile

_DURING = {
    "import": "while being imported",
    "construct": "while ModelNew was constructed",
    "call": "while forward was called",
}


def rehearse(solution: SolutionFile, inside: Workplace) -> Facts:
    """Build a solution and call it; what it builds stays in the folder for the run under ncu.

    Args:
        solution: the file, for messages.
        inside: prepared by `write_request`.

    Raises:
        Judged: the solution or its problem fails.
        KernelgenFault: it could not be contained.
    """
    inside = msgspec.structs.replace(inside, environment=tool_environment(inside))
    folder = str(inside.folder.resolve())
    command = python_command("kernelgen.profile.profile_host", "rehearse", folder)
    ended = run_contained(command, inside)
    failed = inside.folder / FAILED
    if failed.exists():
        said = msgspec.json.decode(failed.read_bytes(), type=CandidateFailed)
        raise _judged(said, solution, ended)
    facts = inside.folder / FACTS
    if ended.exit_code == 0 and facts.exists():
        return msgspec.json.decode(facts.read_bytes(), type=Facts)
    if ended.exit_code is None:
        reason = (
            f"building and calling it took longer than {inside.deadline_s:g} s, and it was ended"
            f"{last_place(ended.output, solution)}; --timeout gives it more"
        )
        raise Judged(Status.TIMEOUT, reason)
    if ended.exit_code in (NOT_CONTAINED, -signal.SIGKILL):
        # The solution may have ended itself so, whatever it printed: what is contained without it
        # tells whether this machine contains anything.
        refuse_uncontained(run_contained(["true"], inside).output)
    reason = explain_exit(ended.exit_code) + last_place(ended.output, solution)
    printed = own_words(ended.output)
    raise Judged(Status.CRASHED, f"its process ended: {reason}\n{printed}".rstrip())


def _judged(failed: CandidateFailed, solution: SolutionFile, ended: Ended) -> Judged:
    if failed.phase == "reference":
        reason = f"the problem's reference fails: {failed.type_name}: {failed.message}"
        return Judged(Status.INVALID_PROBLEM, reason)
    status, reason = explain_failure(failed, solution, _DURING[failed.phase], ended.output)
    if solution.wants == "cpu":
        reason += "\nits source is written for the CPU, and profiling runs it on a GPU"
    return Judged(status, reason)
