"""A run on a console: details first, then the table, the figures of a suite, and the summary."""

import math
import re
from collections.abc import Iterator

import msgspec
from rich.console import Console

from kernelgen.grading.verdict import UNKNOWN_TIME, UNTIMED_BASELINE, Run, Status, Verdict
from kernelgen.installation import newer_than_tested
from kernelgen.report import columns
from kernelgen.report.console import (
    Column,
    Line,
    kernelbench_name,
    number_order,
    print_line,
    print_table,
    short_names,
)
from kernelgen.report.details import asked_for, details, remarkable
from kernelgen.report.outcome import summary
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.suite import USUAL_BASELINES, baselines_of, some, suite_facts

_WARNING_LINES = 5
_NOTHING = {
    Status.NO_DEVICE: "anything but the build, there is no device",
    Status.INVALID_PROBLEM: "the solution, its problem verifies nothing",
    Status.GRADER_ERROR: "anything for certain, the grader failed",
}


def show(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Print a run, what matters most at the end; with `verbose`, the details of passes too."""
    run = ordered(run)
    for verdict in run.verdicts:
        if verbose or not verdict.passed:
            for line in details(verdict):
                print_line(line, console)
            console.print()
    print_table(list(_columns(run)), run.verdicts, console)
    console.print()
    for line in _closing(run, verbose=verbose):
        print_line(line, console)


def sheet(run: Run) -> list[list[str]]:
    """Return the whole table as text: the headings, then a row for each verdict."""
    run = ordered(run)
    shown = list(_columns(run))
    head = [" ".join(column.heading.split("\n")) for column in shown]
    return [head, *([printable(c.cell(one)) for c in shown] for one in run.verdicts)]


def ordered(run: Run) -> Run:
    """Return the run one device after the other, by problem, passes first, the shortest time first.

    What was not run on any device stands with the first, and what has no time comes last.
    """
    devices = list(dict.fromkeys(verdict.device for verdict in run.verdicts if verdict.device))
    statuses = list(Status)

    def key(one: Verdict) -> tuple[int, list[str], int, float]:
        device = devices.index(one.device) if one.device else 0
        time_ms = math.inf if one.timing is None else one.timing.candidate_ms
        return device, number_order(one.problem), statuses.index(one.status), time_ms

    return msgspec.structs.replace(run, verdicts=tuple(sorted(run.verdicts, key=key)))


def _columns(run: Run) -> Iterator[Column[Verdict]]:
    names = _names(run)
    yield msgspec.structs.replace(columns.SOLUTION, cell=lambda verdict: names[verdict.solution])
    # A text that is the same in every row is said once, below the table.
    if len({verdict.problem for verdict in run.verdicts}) > 1 and not all(
        names[verdict.solution]
        in {verdict.problem, kernelbench_name(verdict.problem, verdict.solution)}
        for verdict in run.verdicts
    ):
        yield columns.PROBLEM
    yield from (columns.STATUS, columns.TIME, columns.EAGER, columns.COMPILE)
    yield from (columns.VS_EAGER, columns.VS_COMPILE)
    others = [name for name in baselines_of(run) if name not in USUAL_BASELINES]
    yield from (columns.versus(name, ranks=(12, 11, 4)) for name in others)
    yield from (columns.LIMIT, columns.ERROR, columns.GBPS, columns.BUILD)


def _names(run: Run) -> dict[str, str]:
    names = short_names(verdict.solution for verdict in run.verdicts)
    # Where no two share a name, KernelBench's have room for their problem's.
    told = {
        v.solution: kernelbench_name(v.problem, v.solution)
        for v in run.verdicts
        if names[v.solution] != v.solution
    }
    return names | {path: name for path, name in told.items() if name}


def _closing(run: Run, *, verbose: bool) -> Iterator[Line]:
    problems = {verdict.problem for verdict in run.verdicts}
    if len(problems) == 1 and "" not in problems and problems != set(_names(run).values()):
        yield Line(text=f"problem: {''.join(problems)}")
    if not verbose:
        yield from _warnings([v for v in run.verdicts if v.passed])
    torch = str(run.environment.get("torch", ""))
    if newer := newer_than_tested(torch):
        yield Line(text=f"warning: torch {torch} is {newer}", style="yellow")
    if len(run.verdicts) > 1:
        yield from (Line(text=f"{name}: {told}") for name, told in suite_facts(run))
    for text in dict.fromkeys(asked_for(v) for v in run.verdicts if v.overrides):
        yield Line(text=f"in effect: {text}")
    for text in not_judged(run):
        yield Line(text=f"not judged: {text}")
    timings = [verdict.timing for verdict in run.verdicts if verdict.timing is not None]
    if any(timing.host_bound for timing in timings):
        yield Line(text=f"{columns.HOST_BOUND} host-bound: a call takes the host longer than this")
    for method in dict.fromkeys(timing.method for timing in timings if timing.method):
        yield Line(text=f"Times: {method}", style="dim")
    yield Line(text=summary(run), style="bold")


def _warnings(passed: list[Verdict]) -> Iterator[Line]:
    """Yield a line for each warning of passes, with the solutions that it is true of."""
    names = short_names(verdict.solution for verdict in passed)
    found: dict[str, list[str]] = {}
    for verdict in passed:
        for warning in verdict.warnings:
            text = re.sub(rf"^{re.escape(verdict.solution)}:\d+: ", "", printable_lines(warning)[0])
            found.setdefault(text, []).append(names[verdict.solution])
    for text, solutions in list(found.items())[:_WARNING_LINES]:
        yield Line(text=f"warning: {text}: {some(solutions)}", style="yellow")
    if len(found) > _WARNING_LINES:
        yield Line(text=f"{len(found) - _WARNING_LINES} more warnings, which -v shows")
    if told := [names[v.solution] for v in passed if remarkable(v) and not v.warnings]:
        yield Line(text=f"passed with remarks, which -v shows: {some(told)}")


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
