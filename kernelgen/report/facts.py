"""What was measured beside the verdict: precision, repetition, compute-sanitizer, the times."""

from collections.abc import Iterator

from kernelgen.grading.correctness.precision_name import in_words
from kernelgen.grading.verdict import CaseResult, Verdict
from kernelgen.report.time_facts import time_facts, time_remarks


def remarkable(verdict: Verdict) -> bool:
    """Whether a pass without warnings has something that a reader should see."""
    if _unsteady(verdict) or verdict.sanitizer is not None:
        return True
    return any(time_remarks(verdict.timing))


def facts(verdict: Verdict) -> Iterator[str]:
    """Yield one line for each measurement that there is; determinism only where it is lacking."""
    correctness = verdict.correctness
    effective = correctness.effective_precision if correctness else None
    if effective is not None:
        yield f"precision: {effective.name}: {in_words(effective)}"
    unsteady = _unsteady(verdict)
    if unsteady:
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


def _unsteady(verdict: Verdict) -> list[CaseResult]:
    cases = verdict.correctness.cases if verdict.correctness else ()
    return [case for case in cases if case.deterministic is False]
