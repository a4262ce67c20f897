"""What is said of all solutions together: counts, the table, and the speedups drawn."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from markupsafe import Markup

from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.html.entry import Entry
from kernelgen.report.html.subjects import timed_subjects
from kernelgen.report.html.svg import drawable, speedup_axis, speedup_bar, speedup_scale
from kernelgen.report.html.view import Fact, Heading, Mark, number
from kernelgen.report.numbers import error_size, interval, percent, plain, times
from kernelgen.report.suite import suite_facts, suite_figures

_SIGNS = ("✓", "✗", "!", "?")


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many verdicts have a status."""

    number: int
    mark: Mark


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


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's row in that table."""

    entry: Entry
    values: tuple[Value, ...]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's row in a chart: its drawing, its value in digits, and what follows from it."""

    entry: Entry
    drawing: Markup
    value: str
    words: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The speedups over a baseline, over one axis.

    Attributes:
        title, note: the baseline, and what it is; a note may be "".
        axis: the drawing of the axis, "" if no row has a bar.
        bars: rows, the fastest first.
    """

    title: str
    note: str
    axis: Markup
    bars: tuple[Bar, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        counts: by status, PASSED first.
        figures: of the whole run.
        headings: of the table, after those of the name and the status.
        rows: in the order of the run.
        speedups: a chart for each baseline.
    """

    counts: tuple[Count, ...]
    figures: tuple[Fact, ...]
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
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
    return Overview(
        counts=tuple(_counts(entries)),
        figures=tuple(Fact(name, text) for name, text in suite_facts(suite_figures(run))),
        headings=tuple(heading for heading, _ in columns),
        rows=tuple(
            Row(entry=entry, values=tuple(values[position] for _, values in columns))
            for position, entry in enumerate(entries)
        ),
        speedups=tuple(_chart(entries, name) for name in baselines),
    )


def _counts(entries: Sequence[Entry]) -> Iterator[Count]:
    numbers = Counter(entry.mark for entry in entries)
    order = sorted(numbers, key=lambda mark: (_SIGNS.index(mark.sign), -numbers[mark], mark.text))
    for mark in order:
        yield Count(number=numbers[mark], mark=mark)


def _columns(baselines: tuple[str, ...]) -> Iterator[tuple[Heading, Callable[[Verdict], Value]]]:
    yield number("time ms"), _of_timing(lambda timing: _number(timing.candidate_ms))
    for name in baselines:
        yield number(f"{name} ms"), _of_timing(partial(_median, name))
    for name in baselines:
        yield number(f"against {name}"), _of_timing(partial(_speedup, name))
    yield number("of the limit"), _of_timing(_share_of_limit)
    yield number("max error"), _error
    yield number("build s"), _build
    yield Heading("problem"), lambda verdict: Value(verdict.problem, verdict.problem)


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
    found = [
        (entry, timing.speedup[baseline], timing.subjects.get(baseline))
        for entry in entries
        if (timing := entry.verdict.timing) and baseline in timing.speedup
    ]
    found.sort(key=lambda one: -one[1].median)
    scale = speedup_scale(speedup for _, speedup, _ in found if drawable(speedup))
    bars = tuple(
        Bar(
            entry=entry,
            drawing=speedup_bar(speedup, scale, baseline) if drawable(speedup) else Markup(),
            value=f"{times(speedup.median)} {interval(speedup)}",
            words=speedup.says,
        )
        for entry, speedup, _ in found
    )
    what = dict.fromkeys(subject.what for _, _, subject in found if subject is not None)
    return Chart(
        title=f"Against {baseline}",
        note=f"{baseline}: {' or '.join(what)}" if what else "",
        axis=speedup_axis(scale) if any(bar.drawing for bar in bars) else Markup(),
        bars=bars,
    )
