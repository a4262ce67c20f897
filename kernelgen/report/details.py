"""What stands below the table about one verdict: its reason, the end of its log, its warnings."""

from collections.abc import Iterator

import msgspec

from kernelgen.grading.verdict import OWN_KERNELS, Owner, Status, Verdict
from kernelgen.report.columns import mark, style
from kernelgen.report.facts import facts, remarkable
from kernelgen.report.printable import printable, printable_lines

_REASON_LINES = 40
_LOG_LINES = 10
_KERNEL_LINES = 6
_LEAST_SHARE = 0.001
# Here the candidate either never ran or is not in question.
_WITHOUT_LOG = (Status.PASSED, Status.NO_DEVICE, Status.INVALID_PROBLEM)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report.

    Attributes:
        lead: what it starts with.
        folded_lead: what its further rows start with where a narrow terminal folds it; so that no
            text of a candidate ever reaches the first column, where the report's own lines start.
        text: printable text.
        style: a rich style.
    """

    lead: str
    folded_lead: str
    text: str
    style: str = ""


def details(verdict: Verdict, *, ascii_only: bool) -> Iterator[Line]:
    """Yield the lines about a verdict; none for a pass without anything that should be known."""
    if verdict.passed and not verdict.warnings and not remarkable(verdict):
        return
    name = printable(verdict.solution, ascii_only=ascii_only)
    sign = mark(verdict, ascii_only=ascii_only)
    heading = f"{name}: {_ending(verdict)}"
    yield Line(lead=f"{sign} ", folded_lead="  ", text=heading, style=style(verdict))
    reason = [] if verdict.passed else printable_lines(verdict.reason, ascii_only=ascii_only)
    yield from (_indented(text) for text in reason[:_REASON_LINES])
    if len(reason) > _REASON_LINES:
        left_out = len(reason) - _REASON_LINES
        yield _indented(f"({left_out} more lines; --json has them)", "dim")
    for text in facts(verdict):
        yield _indented(printable(text, ascii_only=ascii_only), "dim")
    yield from _log(verdict, reason, ascii_only=ascii_only)
    yield from _kernels(verdict, ascii_only=ascii_only)
    for warning in verdict.warnings:
        for text in printable_lines(warning, ascii_only=ascii_only):
            yield _indented(f"warning: {text}", "yellow")


def _kernels(verdict: Verdict, *, ascii_only: bool) -> Iterator[Line]:
    told = [use for use in verdict.kernels if use.share >= _LEAST_SHARE][:_KERNEL_LINES]
    for use in told:
        name = printable(use.name, ascii_only=ascii_only)
        calls = f"{use.calls:g} x " if use.calls != 1 else ""
        text = f"{use.share:6.1%}  {use.owner:<9}  {calls}{name}"
        yield _indented(text, "" if use.owner in OWN_KERNELS else "dim")
    rest = verdict.kernels[len(told) :]
    if rest:
        share = sum(use.share for use in rest)
        yield _indented(f"{share:6.1%}  {len(rest)} more; --json has them", "dim")


def _ending(verdict: Verdict) -> str:
    if verdict.passed:
        return "PASSED, with warnings" if verdict.warnings else "PASSED"
    if verdict.owner is Owner.CANDIDATE:
        return verdict.status.value
    return f"{verdict.status.value} (the {verdict.owner.value}'s doing, not the candidate's)"


def _log(verdict: Verdict, reason: list[str], *, ascii_only: bool) -> Iterator[Line]:
    if verdict.status in _WITHOUT_LOG:
        return
    told = {line.strip() for line in reason}
    log = printable_lines(verdict.log, ascii_only=ascii_only)
    new = [line for line in log if line.strip() not in told]
    if new:
        yield _indented("the end of what it printed:", "dim")
    for text in new[-_LOG_LINES:]:
        yield Line(lead="    | ", folded_lead="    | ", text=text, style="dim")


def _indented(text: str, style: str = "") -> Line:
    return Line(lead="    ", folded_lead="    ", text=text, style=style)
