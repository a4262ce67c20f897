"""Details of one verdict: its reason, the end of its log, the measurements."""

from collections.abc import Iterator

from kernelgen.grading.timing.times import CANDIDATE, Conditions, Timing
from kernelgen.grading.verdict import OWN_KERNELS, CaseResult, Owner, Status, Verdict
from kernelgen.report.columns import decimal, said, tone
from kernelgen.report.console import Line, indented
from kernelgen.report.printable import printable_lines
from kernelgen.report.suite import USUAL_BASELINES

_REASON_LINES = 40
_LOG_LINES = 10
_KERNEL_LINES = 6
_LEAST_SHARE = 0.001
# Here the candidate either never ran or is not in question.
_WITHOUT_LOG = (Status.PASSED, Status.NO_DEVICE, Status.INVALID_PROBLEM)


def details(verdict: Verdict) -> Iterator[Line]:
    """Yield the lines about a verdict, a heading first."""
    heading = f"{verdict.solution}: {_ending(verdict)}"
    yield Line(lead=f"{tone(verdict).sign} ", text=heading, style=tone(verdict).style)
    reason = [] if verdict.passed else printable_lines(verdict.reason)
    yield from (indented(text, "") for text in reason[:_REASON_LINES])
    if len(reason) > _REASON_LINES:
        yield indented(f"({len(reason) - _REASON_LINES} more lines; --json has them)")
    yield from map(indented, facts(verdict))
    yield from _log(verdict, reason)
    yield from _kernels(verdict)
    for warning in verdict.warnings:
        for text in printable_lines(warning):
            yield indented(f"warning: {text}", "yellow")


def _kernels(verdict: Verdict) -> Iterator[Line]:
    told = [use for use in verdict.kernels if use.share >= _LEAST_SHARE][:_KERNEL_LINES]
    for use in told:
        calls = f"{use.calls:g} x " if use.calls != 1 else ""
        text = f"{use.share:6.1%}  {use.owner:<9}  {calls}{use.name}"
        yield indented(text, "" if use.owner in OWN_KERNELS else "dim")
    rest = verdict.kernels[len(told) :]
    if rest:
        share = sum(use.share for use in rest)
        yield indented(f"{share:6.1%}  {len(rest)} more; --json has them")


def _ending(verdict: Verdict) -> str:
    if verdict.passed:
        return "PASSED, with warnings" if verdict.warnings else "PASSED"
    if verdict.owner is Owner.CANDIDATE:
        return verdict.status.value
    return f"{verdict.status.value} (the {verdict.owner.value}'s doing, not the candidate's)"


def _log(verdict: Verdict, reason: list[str]) -> Iterator[Line]:
    if verdict.status in _WITHOUT_LOG:
        return
    told = {line.strip() for line in reason}
    new = [line for line in printable_lines(verdict.log) if line.strip() not in told]
    if new:
        yield indented("the end of what it printed:")
    for text in new[-_LOG_LINES:]:
        yield Line(lead="    | ", folded_lead="    | ", text=text, style="dim")


def remarkable(verdict: Verdict) -> bool:
    """Whether something should be known of a verdict though nothing is wrong with the candidate."""
    told = verdict.warnings or _unsteady(verdict) or verdict.sanitizer is not None
    return bool(told) or any(time_remarks(verdict.timing))


def facts(verdict: Verdict) -> Iterator[str]:
    """Yield one line for each measurement that there is; determinism only where it is lacking."""
    if verdict.overrides:
        yield "in effect: " + asked_for(verdict)
    if unsteady := _unsteady(verdict):
        apart = [case.repeat_max_diff for case in unsteady if case.repeat_max_diff is not None]
        largest = f", up to {max(apart):.1e} apart" if apart else ""
        names = ", ".join(case.name for case in unsteady)
        yield f"the same inputs gave other bits the second time{largest} (case {names})"
    if verdict.sanitizer is not None:
        tools = " and ".join(verdict.sanitizer.tools) or "no tool"
        kinds = len(verdict.sanitizer.findings)
        found = f"{kinds} kinds of findings" if kinds > 1 else "one finding" if kinds else "clean"
        yield f"compute-sanitizer, {tools} on case {verdict.sanitizer.case}: {found}"
    yield from time_remarks(verdict.timing)
    yield from time_facts(verdict.timing)


def asked_for(verdict: Verdict) -> str:
    """Return what a verdict was asked for beside the problem's own rules."""
    return "; ".join(f"--{name} ({what})" for name, what in verdict.overrides.items())


def _unsteady(verdict: Verdict) -> list[CaseResult]:
    cases = verdict.correctness.cases if verdict.correctness else ()
    return [case for case in cases if case.deterministic is False]


def time_remarks(timing: Timing | None) -> Iterator[str]:
    """Yield what a reader of the times should see though nothing is wrong with the candidate."""
    if timing is None:
        return
    for name, found in timing.speedup.items():
        if name not in USUAL_BASELINES:
            of = timing.subjects.get(name)
            what = "" if of is None else f" ({decimal(of.median_ms)} ms, {of.what})"
            yield f"vs {name}: {said(found)}{what}"
    if timing.conditions is not None:
        yield from _throttling(timing.conditions)


def time_facts(timing: Timing | None) -> Iterator[str]:
    """Yield what else is known about the times: the limit, and the host."""
    if timing is None:
        return
    if timing.limit is not None:
        limit = timing.limit
        rate = f", {limit.rate}" if limit.rate else ""
        reached = f"reached: {limit.fraction:.0%} (bytes and operations {limit.source})"
        yield f"limit: {decimal(limit.limit_ms)} ms, by {limit.bound}{rate}; {reached}"
    for name, subject in timing.subjects.items():
        if subject.host_ms is not None and (name == CANDIDATE or name in timing.host_bound):
            mark = f"{name} host-bound: " * (name in timing.host_bound)
            returned = f"forward returned after {decimal(subject.host_ms)} ms"
            yield f"{mark}{returned}, with the device at work"


def _throttling(conditions: Conditions) -> Iterator[str]:
    reasons = ", ".join(conditions.throttled)
    again = conditions.repeated_blocks
    if reasons or again:
        blocks = f"{again} block{'s' if again > 1 else ''} measured again" if again else ""
        found = f"the device lowered its clocks ({reasons})" if reasons else ""
        yield ", ".join(part for part in (found, blocks) if part)
