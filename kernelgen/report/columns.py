"""Columns of tables of verdicts, and how numbers are written in them."""

from collections.abc import Callable
from enum import Enum
from functools import partial

from kernelgen.grading.timing.times import CANDIDATE, Speedup, Timing
from kernelgen.grading.verdict import Owner, Verdict
from kernelgen.report.console import Column
from kernelgen.report.numbers import of_allowed
from kernelgen.report.printable import printable
from kernelgen.report.suite import speedup_over

HOST_BOUND = "*"


class Tone(Enum):
    """How a result is marked: the character that goes before a word, and a rich style.

    Cyan against red is told apart with every common colour blindness, and the sign says it again.
    """

    GOOD = ("✓", "cyan")
    BAD = ("✗", "bold red")
    WARNING = ("!", "yellow")
    UNSURE = ("?", "yellow")
    NONE = (" ", "")

    def __init__(self, sign: str, style: str) -> None:
        self.sign, self.style = sign, style


_TONES = {Owner.CANDIDATE: Tone.BAD, Owner.PROBLEM: Tone.WARNING, Owner.GRADER: Tone.UNSURE}


def tone(verdict: Verdict) -> Tone:
    """Return the tone of a pass, or of a failure that is somebody's doing."""
    return Tone.GOOD if verdict.passed else _TONES[verdict.owner]


def decimal(value: float | None) -> str:
    """Return a positive number with three significant digits and no exponent, or "" for None."""
    if value is None:
        return ""
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


def said(speedup: Speedup | None) -> str:
    """Return `1.71x [1.70, 1.72] faster`, or ""."""
    return "" if speedup is None else f"{speedup_text(speedup, interval=True)} {speedup.says}"


def _places(speedup: Speedup) -> int:
    """Return as many decimals as it takes to see on which side of 1 the interval lies."""
    if speedup.median >= 100:  # noqa: PLR2004 - two decimals of 250x are noise
        return 0
    nearest = min(speedup.ci95, key=lambda bound: abs(bound - 1.0))
    enough = (n for n in (2, 3) if speedup.says == "same" or f"{nearest:.{n}f}" != f"{1:.{n}f}")
    return next(enough, 4)


def versus(baseline: str, *, ranks: tuple[int, int, int]) -> Column[Verdict]:
    """Return the column of the speedup over a baseline, and what takes its place.

    The ranks are of the interval with what it says, of the interval alone, and of the median.
    """

    def of(
        heading: str,
        rank: int,
        text: Callable[[Speedup | None], str],
        narrower: Column[Verdict] | None = None,
    ) -> Column[Verdict]:
        def cell(verdict: Verdict) -> str:
            return text(speedup_over(baseline, verdict))

        return Column(heading, cell, number=True, rank=rank, narrower=narrower)

    name = printable(baseline)
    median = of(f"vs\n{name}", ranks[2], partial(speedup_text, interval=False))
    heading = f"vs {name}\n[95 %]"
    interval = of(heading, ranks[1], partial(speedup_text, interval=True), median)
    return of(heading, ranks[0], said, interval)


def _timed(heading: str, rank: int, cell: Callable[[Timing], str]) -> Column[Verdict]:
    return Column(heading, lambda v: cell(v.timing) if v.timing else "", number=True, rank=rank)


def _marked(timing: Timing, subject: str, time_ms: float | None) -> str:
    """Return a subject's time, with a star where the host takes longer than the device."""
    return decimal(time_ms) + HOST_BOUND * (subject in timing.host_bound)


def _error(verdict: Verdict) -> str:
    correctness = verdict.correctness
    return "" if correctness is None else of_allowed(correctness.of_allowed)


def _build(verdict: Verdict) -> str:
    if verdict.build is None:
        return ""
    seconds = f"{verdict.build.seconds:.1f}"
    return f"{seconds} cached" if verdict.build.cached else seconds


# The ranks decide what a console of 100 cells shows of a run on a GPU: the solution, its status,
# both times, the speedup over eager with its interval, that over torch.compile without, the share
# of the limit, the largest error and, if the names are short, the seconds of the build.
SOLUTION: Column[Verdict] = Column("solution", lambda v: v.solution, name=True)
PROBLEM: Column[Verdict] = Column("problem", lambda v: v.problem, rank=14)
STATUS: Column[Verdict] = Column(
    "status", lambda v: f"{tone(v).sign} {v.status.value}", style=lambda v: tone(v).style
)
TIME = _timed("time\nms", 1, lambda timing: _marked(timing, CANDIDATE, timing.candidate_ms))
EAGER = _timed("eager\nms", 8, lambda timing: _marked(timing, "eager", timing.eager_ms))
COMPILE = _timed("compile\nms", 13, lambda timing: _marked(timing, "compile", timing.compile_ms))
VS_EAGER = versus("eager", ranks=(10, 6, 2))
VS_COMPILE = versus("compile", ranks=(12, 11, 3))
LIMIT = _timed("of\nlimit", 5, lambda t: f"{t.limit.fraction:.0%}" if t.limit else "")
ERROR: Column[Verdict] = Column("error of\nallowed", _error, number=True, rank=11)
GBPS = _timed("GB/s", 15, lambda timing: decimal(timing.gbps))
BUILD: Column[Verdict] = Column("build\ns", _build, number=True, rank=9)
