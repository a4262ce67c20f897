"""What is said of all solutions together: counts, the table, speedups, shares of the limit."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.timing.times import CANDIDATE, Timing
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.html.bars import (
    drawable,
    limit_axis,
    limit_bar,
    speedup_axis,
    speedup_bar,
    speedup_scale,
)
from kernelgen.report.html.entry import Entry
from kernelgen.report.html.numbers import error_size, interval, percent, plain, times
from kernelgen.report.html.subjects import timed_subjects
from kernelgen.report.html.view import Anchor, Bar, Chart, Fact, Heading, Mark
from kernelgen.report.suite import suite_facts, suite_figures

_SIGNS = ("✓", "✗", "!", "?")


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many verdicts have a status."""

    number: int
    mark: Mark


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of the table of all solutions.

    Attributes:
        text: what is shown; "" where there is nothing.
        below: a second, smaller line.
        sort: what the column is sorted by; "" comes last either way.
    """

    text: str
    below: str = ""
    sort: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's row in that table."""

    anchor: Anchor
    name: Markup
    path: str
    where: str
    mark: Mark
    values: tuple[Value, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        counts: by status, PASSED first.
        figures: of the whole run.
        headings: of the table, after those of the name and the status.
        rows: in the order of the run.
        speedups: a chart for each baseline.
        limit: the chart of shares of the limit; None where no limit is known.
    """

    counts: tuple[Count, ...]
    figures: tuple[Fact, ...]
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    speedups: tuple[Chart, ...]
    limit: Chart | None


def overview_of(entries: Sequence[Entry], run: Run) -> Overview:
    """Return what is said of all verdicts together."""
    timings = [entry.verdict.timing for entry in entries if entry.verdict.timing]
    baselines = tuple(dict.fromkeys(name for timing in timings for name in timing.speedup))
    columns = [column for column in _columns(baselines) if _used(column, entries)]
    rows = tuple(
        Row(
            anchor=entry.anchor,
            name=entry.name,
            path=entry.verdict.solution,
            where=entry.where,
            mark=entry.mark,
            values=tuple(column.value(entry.verdict) for column in columns),
        )
        for entry in entries
    )
    limits = tuple(_limit_bars(entries))
    return Overview(
        counts=tuple(_counts(entries)),
        figures=tuple(
            Fact(name=name, value=text) for name, text in suite_facts(suite_figures(run))
        ),
        headings=tuple(column.heading for column in columns),
        rows=rows,
        speedups=tuple(_speedups(entries, name) for name in baselines),
        limit=_limit_chart(limits) if limits else None,
    )


def _counts(entries: Sequence[Entry]) -> Iterator[Count]:
    marks = {entry.mark.text: entry.mark for entry in entries}
    numbers = Counter(entry.mark.text for entry in entries)
    order = sorted(numbers, key=lambda text: (_SIGNS.index(marks[text].sign), -numbers[text], text))
    for text in order:
        yield Count(number=numbers[text], mark=marks[text])


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    heading: Heading
    value: Callable[[Verdict], Value]


def _columns(baselines: tuple[str, ...]) -> Iterator[_Column]:
    yield _number("time ms", lambda timing: timing.candidate_ms)
    for name in baselines:
        yield _number(f"{name} ms", _median_of(name))
    for name in baselines:
        heading = Heading(text=f"against {name}", number=True, sort="number")
        yield _Column(heading=heading, value=_speedup_over(name))
    heading = Heading(text="of the limit", number=True, sort="number")
    yield _Column(heading=heading, value=_share_of_limit)
    heading = Heading(text="max error", number=True, sort="number")
    yield _Column(heading=heading, value=_error)
    heading = Heading(text="build s", number=True, sort="number")
    yield _Column(heading=heading, value=_build)
    yield _Column(heading=Heading(text="problem", sort="text"), value=_problem)


def _used(column: _Column, entries: Sequence[Entry]) -> bool:
    return any(column.value(entry.verdict).text for entry in entries)


def _number(text: str, read: Callable[[Timing], float | None]) -> _Column:
    def value(verdict: Verdict) -> Value:
        found = None if verdict.timing is None else read(verdict.timing)
        return Value(text="") if found is None else Value(text=plain(found), sort=repr(found))

    return _Column(heading=Heading(text=text, number=True, sort="number"), value=value)


def _median_of(name: str) -> Callable[[Timing], float | None]:
    def read(timing: Timing) -> float | None:
        found = (subject for subject in timed_subjects(timing) if subject.name == name)
        return next((subject.median_ms for subject in found), None)

    return read


def _speedup_over(name: str) -> Callable[[Verdict], Value]:
    def value(verdict: Verdict) -> Value:
        found = verdict.timing.speedup.get(name) if verdict.timing else None
        if found is None:
            return Value(text="")
        text = f"{times(found.median)} {found.says}"
        return Value(text=text, below=interval(found), sort=repr(found.median))

    return value


def _problem(verdict: Verdict) -> Value:
    return Value(text=verdict.problem, sort=verdict.problem)


def _share_of_limit(verdict: Verdict) -> Value:
    limit = verdict.timing.limit if verdict.timing else None
    if limit is None:
        return Value(text="")
    return Value(text=percent(limit.fraction), below=limit.bound, sort=repr(limit.fraction))


def _error(verdict: Verdict) -> Value:
    found = verdict.correctness
    if found is None or found.max_abs_err is None:
        return Value(text="")
    reference = found.ref_max_abs_err
    below = "" if reference is None else f"fp32 {error_size(reference)}"
    return Value(text=error_size(found.max_abs_err), below=below, sort=repr(found.max_abs_err))


def _build(verdict: Verdict) -> Value:
    if verdict.build is None:
        return Value(text="")
    below = "cached" if verdict.build.cached else ""
    seconds = verdict.build.seconds
    return Value(text=f"{seconds:.1f}", below=below, sort=repr(seconds))


def _speedups(entries: Sequence[Entry], baseline: str) -> Chart:
    found = [
        (entry, entry.verdict.timing.speedup[baseline])
        for entry in entries
        if entry.verdict.timing and baseline in entry.verdict.timing.speedup
    ]
    found.sort(key=lambda pair: -pair[1].median)
    scale = speedup_scale(speedup for _, speedup in found if drawable(speedup))
    bars = tuple(
        Bar(
            label=entry.name,
            where=entry.where,
            anchor=entry.anchor,
            drawing=speedup_bar(speedup, scale, baseline) if drawable(speedup) else Markup(),
            value=f"{times(speedup.median)} {interval(speedup)}",
            words=speedup.says,
        )
        for entry, speedup in found
    )
    subjects = (e.verdict.timing.subjects.get(baseline) for e, _ in found if e.verdict.timing)
    what = dict.fromkeys(subject.what for subject in subjects if subject is not None)
    return Chart(
        title=f"Against {baseline}",
        note=f"{baseline}: {' or '.join(what)}" if what else "",
        axis=speedup_axis(scale) if any(bar.drawing for bar in bars) else Markup(),
        bars=bars,
    )


def _limit_bars(entries: Sequence[Entry]) -> Iterator[Bar]:
    for entry in entries:
        timing = entry.verdict.timing
        if timing is None or timing.limit is None:
            continue
        others = [(s.name, s.median_ms) for s in timed_subjects(timing) if s.name != CANDIDATE]
        yield Bar(
            label=entry.name,
            where=entry.where,
            anchor=entry.anchor,
            drawing=limit_bar(timing.limit, others),
            value=percent(timing.limit.fraction),
            words=f"{plain(timing.limit.limit_ms)} ms, {timing.limit.bound}",
        )


def _limit_chart(bars: tuple[Bar, ...]) -> Chart:
    return Chart(
        title="Share of the hardware's limit",
        note=(
            "The least time that the problem takes, at rates measured on the device, over the time "
            "taken. The bar is the solution, ○ is eager and ◇ is compile."
        ),
        axis=limit_axis(),
        bars=bars,
    )
