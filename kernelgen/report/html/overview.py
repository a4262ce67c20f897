"""What is said of all solutions together: counts, the table, and the speedups drawn."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from kernelgen.grading.timing.times import Speedup, Timing
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.html.axis import Scale, drawable, speedup_scale
from kernelgen.report.html.entry import Entry, Mark
from kernelgen.report.html.subjects import timed_subjects
from kernelgen.report.numbers import error_size, interval, percent, plain, times
from kernelgen.report.suite import suite_facts, suite_figures

_SIGNS = ("✓", "✗", "!", "?")


class Value(msgspec.Struct, frozen=True):
    """A cell of the table of all solutions.

    Attributes:
        text: what is shown; "" where there is nothing.
        sort: what the column is sorted by; "" comes last either way.
        below: a second, smaller line.
    """

    text: str = ""
    sort: str = ""
    below: str = ""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's row in a chart; `drawn` unless its speedup has no place on the axis."""

    entry: Entry
    speedup: Speedup
    drawn: bool


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The speedups over a baseline, over one axis.

    Attributes:
        baseline: its name.
        what: what it is, where the runs say so.
        scale: the axis.
        bars: rows, the fastest first.
    """

    baseline: str
    what: tuple[str, ...]
    scale: Scale
    bars: tuple[Bar, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        counts: how many verdicts have a status, PASSED first.
        figures: of the whole run, each with its name.
        headings: of the table's numbers, after the name and the status.
        rows: in the order of the run.
        speedups: a chart for each baseline.
    """

    counts: tuple[tuple[Mark, int], ...]
    figures: tuple[tuple[str, str], ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, tuple[Value, ...]], ...]
    speedups: tuple[Chart, ...]


def overview_of(entries: Sequence[Entry], run: Run) -> Overview:
    """Return what is said of all verdicts together."""
    timings = [entry.verdict.timing for entry in entries if entry.verdict.timing]
    baselines = tuple(dict.fromkeys(name for timing in timings for name in timing.speedup))
    columns = [
        (heading, [value(entry.verdict) for entry in entries])
        for heading, value in _columns(baselines)
    ]
    columns = [column for column in columns if any(shown.text for shown in column[1])]
    counts = Counter(entry.mark for entry in entries).items()
    return Overview(
        counts=tuple(
            sorted(counts, key=lambda one: (_SIGNS.index(one[0].sign), -one[1], one[0].text))
        ),
        figures=tuple(suite_facts(suite_figures(run))),
        headings=tuple(heading for heading, _ in columns),
        rows=tuple(
            (entry, tuple(values[position] for _, values in columns))
            for position, entry in enumerate(entries)
        ),
        speedups=tuple(_chart(entries, name) for name in baselines),
    )


def _columns(baselines: tuple[str, ...]) -> Iterator[tuple[str, Callable[[Verdict], Value]]]:
    yield "time ms", _of_timing(lambda timing: _number(timing.candidate_ms))
    for name in baselines:
        yield f"{name} ms", _of_timing(partial(_median, name))
    for name in baselines:
        yield f"against {name}", _of_timing(partial(_speedup, name))
    yield "of the limit", _of_timing(_share_of_limit)
    yield "max error", _error
    yield "build s", _build


def _of_timing(value: Callable[[Timing], Value]) -> Callable[[Verdict], Value]:
    return lambda verdict: Value() if verdict.timing is None else value(verdict.timing)


def _number(value: float) -> Value:
    return Value(plain(value), repr(value))


def _median(name: str, timing: Timing) -> Value:
    medians = (s.median_ms for s in timed_subjects(timing) if s.name == name)
    return next((_number(median_ms) for median_ms in medians), Value())


def _speedup(name: str, timing: Timing) -> Value:
    found = timing.speedup.get(name)
    if found is None:
        return Value()
    return Value(f"{times(found.median)} {found.says}", repr(found.median), interval(found))


def _share_of_limit(timing: Timing) -> Value:
    limit = timing.limit
    if limit is None:
        return Value()
    return Value(percent(limit.fraction), repr(limit.fraction), limit.bound)


def _error(verdict: Verdict) -> Value:
    found = verdict.correctness
    if found is None or found.max_abs_err is None:
        return Value()
    reference = found.ref_max_abs_err
    below = "" if reference is None else f"fp32 {error_size(reference)}"
    return Value(error_size(found.max_abs_err), repr(found.max_abs_err), below)


def _build(verdict: Verdict) -> Value:
    if verdict.build is None:
        return Value()
    seconds, below = verdict.build.seconds, "cached" if verdict.build.cached else ""
    return Value(f"{seconds:.1f}", repr(seconds), below)


def _chart(entries: Sequence[Entry], baseline: str) -> Chart:
    timings = [timing for entry in entries if (timing := entry.verdict.timing)]
    subjects = [timing.subjects.get(baseline) for timing in timings if baseline in timing.speedup]
    bars = [
        Bar(entry=entry, speedup=found, drawn=drawable(found))
        for entry in entries
        if (timing := entry.verdict.timing) and (found := timing.speedup.get(baseline))
    ]
    return Chart(
        baseline=baseline,
        what=tuple(dict.fromkeys(one.what for one in subjects if one is not None)),
        scale=speedup_scale(bar.speedup for bar in bars if bar.drawn),
        bars=tuple(sorted(bars, key=lambda bar: -bar.speedup.median)),
    )
