"""What a run leaves open, and why: a pass says nothing about what was not looked at."""

from collections.abc import Iterator

from kernelgen.grading.verdict import UNKNOWN_TIME, UNTIMED_BASELINE, Run, Status, Verdict
from kernelgen.report.suite import some

_NOTHING = {
    Status.NO_DEVICE: "anything but the build, there is no device",
    Status.INVALID_PROBLEM: "the solution, its problem verifies nothing",
    Status.GRADER_ERROR: "anything for certain, the grader failed",
}


def not_judged(run: Run) -> Iterator[str]:
    """Yield a line for each thing that was not judged, with the solutions that it is true of."""
    found: dict[str, list[str]] = {}
    for verdict in run.verdicts:
        for what in _open(verdict):
            found.setdefault(what, []).append(verdict.solution)
    for what, solutions in found.items():
        all_of_them = len(solutions) == len(run.verdicts)
        yield what if all_of_them else f"{what}: {some(solutions)}"


def _open(verdict: Verdict) -> Iterator[str]:
    if verdict.status in _NOTHING:
        yield _NOTHING[verdict.status]
    if not verdict.passed:
        return
    if any(warning.startswith(UNKNOWN_TIME) for warning in verdict.warnings):
        yield "times, others used the device"
    elif verdict.timing is None:
        yield "times, none were asked for"
    elif not verdict.timing.speedup:
        yield "speedup, no baseline was timed"
    for warning in verdict.warnings:
        if warning.startswith(UNTIMED_BASELINE):
            name = warning.removeprefix(UNTIMED_BASELINE).split()[0]
            yield f"speedup over {name}, which could not be timed"
