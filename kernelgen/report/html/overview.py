"""All solutions together: the counts, and the speedups over an axis.

The axis has x in percent of the width and y in pixels, so that lines and letters keep their size.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

import msgspec

from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.report.columns import Tone, tone
from kernelgen.report.console import number_order
from kernelgen.report.html.solution import Entry
from kernelgen.report.json_report import Recorded
from kernelgen.report.numbers import times
from kernelgen.report.suite import baselines_of, speedup_over

# Left and right of what is drawn, so that a label at an end has room.
_MARGIN_PERCENT = 4.0
_MOST_TICKS = 7
# An axis that spans less than this factor has equal steps.
_NARROW = 6.0
# The axis reaches at least this far to either side of 1.
_LEAST_FACTOR = 1.25
# A factor beyond this is no speedup of a kernel but a number that somebody wrote into a file.
_LARGEST_FACTOR = 1e6


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """A logarithmic axis from `low` to `high`, both above 0."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a value in percent of the width; beyond an end, the end."""
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return _MARGIN_PERCENT + share * (100 - 2 * _MARGIN_PERCENT)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Return a few round numbers on it, 1 among them if it lies between the ends."""
        low, high = self.low, self.high
        if high / low < _NARROW:
            rough = (high - low) / (_MOST_TICKS - 1)
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
            count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
            return tuple(round(index * step, 12) for index in count)
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for digits in ((1, 2, 5), (1, 3), (1,)):
            found = [d * 10.0**e for e in range(first, last + 1) for d in digits]
            ticks = [tick for tick in found if low <= tick <= high]
            if len(ticks) <= _MOST_TICKS:
                return tuple(ticks)
        every = math.ceil((last - first) / _MOST_TICKS)
        exponents = (e for e in range(first, last + 1) if e % every == 0)
        return tuple(10.0**e for e in exponents if low <= 10.0**e <= high)


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's row in a chart; `drawn` unless its speedup has no place on the axis."""

    entry: Entry
    speedup: Speedup
    drawn: bool


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The speedups over a baseline, the fastest first, and what it is where the runs say so."""

    baseline: str
    what: tuple[str, ...]
    scale: Scale
    bars: tuple[Bar, ...]


def counts_of(entries: Sequence[Entry]) -> list[tuple[Verdict, int]]:
    """Return a verdict of each tone and status, and how many are like it, PASSED first."""
    alike: dict[tuple[Tone, Status], list[Verdict]] = {}
    for entry in entries:
        alike.setdefault((tone(entry.verdict), entry.verdict.status), []).append(entry.verdict)
    tones = list(Tone)
    kinds = sorted(alike, key=lambda of: (tones.index(of[0]), -len(alike[of]), of[1].value))
    return [(alike[kind][0], len(alike[kind])) for kind in kinds]


def charts_of(entries: Sequence[Entry]) -> list[Chart]:
    """Return the speedups over each baseline that any verdict was timed against."""
    timings = [entry.verdict.timing for entry in entries if entry.verdict.timing]
    return [_chart(entries, name) for name in dict.fromkeys(n for t in timings for n in t.speedup)]


def _chart(entries: Sequence[Entry], baseline: str) -> Chart:
    bars = [
        Bar(entry=entry, speedup=found, drawn=drawable(found))
        for entry in entries
        if (found := speedup_over(baseline, entry.verdict))
    ]
    timings = [bar.entry.verdict.timing for bar in bars]
    subjects = [timing.subjects.get(baseline) for timing in timings if timing]
    return Chart(
        baseline=baseline,
        what=tuple(dict.fromkeys(one.what for one in subjects if one)),
        scale=speedup_scale(bar.speedup for bar in bars if bar.drawn),
        bars=tuple(sorted(bars, key=lambda bar: -bar.speedup.median)),
    )


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The best speedup of a problem in each run, None where it has none; and in words."""

    name: str
    speedups: tuple[float | None, ...]

    @property
    def told(self) -> str:
        """Return all of them, from the first run to the last."""
        return " \N{RIGHTWARDS ARROW} ".join(
            "-" if one is None else times(one) for one in self.speedups
        )


class Across(msgspec.Struct, frozen=True, kw_only=True):
    """The speedups over a baseline in several runs: their mean, then each problem."""

    baseline: str
    runs: tuple[str, ...]
    scale: Scale
    rows: tuple[Row, ...]


def across_of(recorded: Sequence[Recorded]) -> list[Across]:
    """Return what became of problems that several runs have, over each baseline."""
    runs = [record.run for record in recorded]
    names = dict.fromkeys(name for run in runs for name in baselines_of(run))
    charts = [_across(recorded, name) for name in names]
    return [chart for chart in charts if chart.rows] if len(runs) > 1 else []


def _across(recorded: Sequence[Recorded], baseline: str) -> Across:
    best: dict[str, list[float | None]] = {}
    for index, record in enumerate(recorded):
        for verdict in record.run.verdicts:
            found = speedup_over(baseline, verdict)
            if found is not None and verdict.passed and drawable(found):
                of_runs = best.setdefault(verdict.problem, [None] * len(recorded))
                of_runs[index] = max(of_runs[index] or 0.0, found.median)
    several = (name for name, medians in best.items() if sum(map(bool, medians)) > 1)
    rows = [Row(name=n, speedups=tuple(best[n])) for n in sorted(several, key=number_order)]
    common = [row.speedups for row in rows if None not in row.speedups]
    if len(common) > 1:
        means = tuple(geometric_mean(filter(None, of_run)) for of_run in zip(*common, strict=True))
        rows.insert(0, Row(name=f"geometric mean of {len(common)}", speedups=means))
    values = [one for row in rows for one in row.speedups if one is not None]
    spans = [Speedup(median=one, ci95=(one, one)) for one in values]
    runs = tuple(record.name for record in recorded)
    return Across(baseline=baseline, runs=runs, scale=speedup_scale(spans), rows=tuple(rows))


def drawable(speedup: Speedup) -> bool:
    """Return whether a speedup has a place on a logarithmic axis."""
    ends = (speedup.median, *speedup.ci95)
    return all(1 / _LARGEST_FACTOR <= end <= _LARGEST_FACTOR for end in ends)


def speedup_scale(speedups: Iterable[Speedup]) -> Scale:
    """Return an axis on which all of them, and 1, have a place."""
    ends = [end for speedup in speedups for end in (speedup.median, *speedup.ci95)]
    low, high = min([1 / _LEAST_FACTOR, *ends]), max([_LEAST_FACTOR, *ends])
    # A little room at the ends, so that a cap is not drawn over the edge.
    return Scale(low=low / 1.05, high=high * 1.05)


def short(value: float) -> str:
    """Return a coordinate with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
