"""The columns of the table: what each shows of a verdict, and which of them go together."""

from collections.abc import Callable

import msgspec

from kernelgen.grading.timing.times import Speedup, Timing
from kernelgen.grading.verdict import Owner, Verdict


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column.

    Attributes:
        heading: what stands above it, with the unit of what stands below.
        cell: the verdict's entry, or "" where there is none.
        number: right-aligned.
    """

    heading: str
    cell: Callable[[Verdict], str]
    number: bool = True


def decimal(value: float) -> str:
    """Return a positive number with three significant digits and without an exponent."""
    places = next((n for n, least in enumerate((100, 10, 1, 0.1, 0.01)) if value >= least), 5)
    return f"{value:.{places}f}"


def speedup_text(speedup: Speedup | None, *, interval: bool) -> str:
    """Return `1.71x [1.70, 1.72]`, or `1.71x` without the interval, or ""."""
    if speedup is None:
        return ""
    low, high = speedup.ci95
    places = _places(speedup)
    median = f"{speedup.median:.{places}f}x"
    return f"{median} [{low:.{places}f}, {high:.{places}f}]" if interval else median


def said(speedup: Speedup | None, *, interval: bool) -> str:
    """Return the same with what may be claimed, such as `1.71x faster`, or ""."""
    return "" if speedup is None else f"{speedup_text(speedup, interval=interval)} {speedup.says}"


def _places(speedup: Speedup) -> int:
    """Return as many decimals as it takes to see on which side of 1 the interval lies."""
    if speedup.median >= 100:  # noqa: PLR2004 - two decimals of 250x are noise
        return 0
    nearest = min(speedup.ci95, key=lambda bound: abs(bound - 1.0))
    enough = (n for n in (2, 3) if speedup.says == "same" or f"{nearest:.{n}f}" != f"{1:.{n}f}")
    return next(enough, 4)


def _timed(read: Callable[[Timing], float | None]) -> Callable[[Verdict], str]:
    def cell(verdict: Verdict) -> str:
        value = None if verdict.timing is None else read(verdict.timing)
        return "" if value is None else decimal(value)

    return cell


def _faster_than(baseline: str, *, interval: bool) -> Callable[[Verdict], str]:
    def cell(verdict: Verdict) -> str:
        found = None if verdict.timing is None else verdict.timing.speedup.get(baseline)
        return said(found, interval=interval)

    return cell


def _of_limit(verdict: Verdict) -> str:
    limit = None if verdict.timing is None else verdict.timing.limit
    return "" if limit is None else f"{limit.fraction:.0%}"


def _error(verdict: Verdict) -> str:
    if verdict.correctness is None or verdict.correctness.max_abs_err is None:
        return ""
    own, reference = verdict.correctness.max_abs_err, verdict.correctness.ref_max_abs_err
    return f"{own:.1e}" if reference is None else f"{own:.1e} ({reference:.1e})"


def _build(verdict: Verdict) -> str:
    if verdict.build is None:
        return ""
    seconds = f"{verdict.build.seconds:.1f}"
    return f"{seconds} cached" if verdict.build.cached else seconds


SOLUTION = Column(heading="solution", cell=lambda verdict: verdict.solution, number=False)
PROBLEM = Column(heading="problem", cell=lambda verdict: verdict.problem, number=False)
STATUS = Column(heading="status", cell=lambda verdict: verdict.status.value, number=False)
TIME = Column(heading="time ms", cell=_timed(lambda timing: timing.candidate_ms))
EAGER = Column(heading="eager ms", cell=_timed(lambda timing: timing.eager_ms))
COMPILE = Column(heading="compile ms", cell=_timed(lambda timing: timing.compile_ms))
VS_EAGER = Column(heading="vs eager [95 %]", cell=_faster_than("eager", interval=True))
VS_COMPILE = Column(heading="vs compile [95 %]", cell=_faster_than("compile", interval=True))
SHORT_VS_EAGER = Column(heading="vs eager", cell=_faster_than("eager", interval=False))
SHORT_VS_COMPILE = Column(heading="vs compile", cell=_faster_than("compile", interval=False))
LIMIT = Column(heading="of limit", cell=_of_limit)
ERROR = Column(heading="max error (ref.)", cell=_error)
GBPS = Column(heading="GB/s", cell=_timed(lambda timing: timing.gbps))
BUILD = Column(heading="build s", cell=_build)

_SPEED = (VS_EAGER, VS_COMPILE)
_SHORT_SPEED = (SHORT_VS_EAGER, SHORT_VS_COMPILE)

# From the widest to the narrowest: a terminal gets the first that fits.
LAYOUTS: tuple[tuple[Column, ...], ...] = (
    (SOLUTION, PROBLEM, STATUS, TIME, EAGER, COMPILE, *_SPEED, LIMIT, ERROR, GBPS, BUILD),
    (SOLUTION, PROBLEM, STATUS, TIME, EAGER, COMPILE, *_SPEED, LIMIT, ERROR, GBPS),
    (SOLUTION, PROBLEM, STATUS, TIME, EAGER, COMPILE, *_SPEED, LIMIT, ERROR),
    (SOLUTION, PROBLEM, STATUS, TIME, *_SPEED, LIMIT, ERROR),
    (SOLUTION, STATUS, TIME, *_SPEED, LIMIT, ERROR),
    (SOLUTION, STATUS, TIME, *_SPEED, LIMIT),
    (SOLUTION, STATUS, TIME, *_SHORT_SPEED, LIMIT, ERROR),
    (SOLUTION, STATUS, TIME, *_SHORT_SPEED, LIMIT),
    (SOLUTION, STATUS, TIME, *_SHORT_SPEED),
    (SOLUTION, STATUS, TIME, SHORT_VS_EAGER),
    (SOLUTION, STATUS, TIME),
    (SOLUTION, STATUS),
)

_MARKS = {Owner.CANDIDATE: ("✗", "x"), Owner.PROBLEM: ("!", "!"), Owner.GRADER: ("?", "?")}
# Cyan against red is told apart with every common colour blindness, and the mark says it again.
_STYLES = {Owner.CANDIDATE: "bold red", Owner.PROBLEM: "yellow", Owner.GRADER: "yellow"}


def mark(verdict: Verdict, *, ascii_only: bool) -> str:
    """Return the one-character sign that goes before a status."""
    marks = ("✓", "+") if verdict.passed else _MARKS[verdict.owner]
    return marks[ascii_only]


def style(verdict: Verdict) -> str:
    """Return the rich style of a status."""
    return "cyan" if verdict.passed else _STYLES[verdict.owner]
