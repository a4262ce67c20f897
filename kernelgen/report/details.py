"""What there is to say about one verdict: its reason, the end of its log, what was measured."""

from collections.abc import Iterator

from kernelgen.grading.verdict import OWN_KERNELS, Owner, Status, Verdict
from kernelgen.report.columns import tone
from kernelgen.report.facts import facts
from kernelgen.report.printable import printable_lines
from kernelgen.report.table import Line, indented

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
