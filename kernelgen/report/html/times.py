"""The part of a solution's section that is about time."""

from collections.abc import Iterator

from markupsafe import Markup

from kernelgen.grading.timing.times import (
    CANDIDATE,
    Conditions,
    Confirmation,
    Limit,
    SecondClock,
    Timing,
)
from kernelgen.report.html.subjects import Timed, timed_subjects
from kernelgen.report.html.view import Cell, Fact, Fold, Grid, Heading, Part, number
from kernelgen.report.numbers import byte_size, count, interval, percent, plain, times

# The samples' median is the quoted time, unless the time of calls in a row is quoted.
_SAME = 1e-3


def time_parts(timing: Timing) -> Iterator[Part]:
    """Yield what was timed, how that was confirmed, and what the device was like meanwhile."""
    subjects = timed_subjects(timing)
    yield Part(
        title="Times",
        notes=tuple(_notes(timing, subjects)),
        facts=tuple(_limit_facts(timing)),
        grids=tuple(_grids(timing, subjects)),
        folds=_samples(subjects),
    )
    facts = (*_clock_facts(timing.second_clock), *_confirmation_facts(timing.confirmed))
    if facts:
        yield Part(title="Clocks", wide=False, facts=facts)
    if timing.conditions is not None:
        yield Part(title="Conditions", wide=False, facts=tuple(_condition_facts(timing.conditions)))


def _notes(timing: Timing, subjects: tuple[Timed, ...]) -> Iterator[str]:
    if timing.method:
        yield f"{timing.method[0].upper()}{timing.method[1:]}."
    own = next((subject for subject in subjects if subject.name == CANDIDATE), None)
    if own and abs(own.median_ms - timing.candidate_ms) > _SAME * timing.candidate_ms:
        yield (
            f"Quoted is {plain(timing.candidate_ms)} ms, the time of calls in a row, and not the "
            f"median of the single calls, {plain(own.median_ms)} ms."
        )
    for subject in subjects:
        if subject.record is not None and subject.record.bimodal:
            yield f"The times of {subject.name} fall into two groups that lie apart."


def _grids(timing: Timing, subjects: tuple[Timed, ...]) -> Iterator[Grid]:
    columns: list[tuple[Heading, list[Cell]]] = [
        (Heading("subject"), [subject.name for subject in subjects]),
        *((number(text), cells) for text, cells in _number_columns(timing, subjects)),
        (Heading("what it is"), [s.record.what if s.record else "" for s in subjects]),
    ]
    kept = [(heading, cells) for heading, cells in columns if any(cells)]
    yield Grid(
        caption="Medians, with the 95 % interval of the median and the quartiles",
        headings=tuple(heading for heading, _ in kept),
        rows=tuple(zip(*(cells for _, cells in kept), strict=True)),
    )
    if timing.speedup:
        yield Grid(
            caption="Baseline time over the solution's time, with its 95 % interval",
            headings=(
                Heading("against"), number("speedup"), number("95 % interval"), Heading("so it is"),
            ),
            rows=tuple(
                (name, times(found.median), interval(found), found.says)
                for name, found in timing.speedup.items()
            ),
        )  # fmt: skip


def _number_columns(
    timing: Timing, subjects: tuple[Timed, ...]
) -> Iterator[tuple[str, list[Cell]]]:
    records = [subject.record for subject in subjects]
    yield "median ms", [plain(subject.median_ms) for subject in subjects]
    yield "95 % interval", [_pair(subject.interval_ms) for subject in subjects]
    if timing.limit is not None:
        limit_ms = timing.limit.limit_ms
        yield (
            "of the limit",
            [percent(limit_ms / s.median_ms) if s.median_ms > 0 else "" for s in subjects],
        )
    yield "quartiles", [_pair(subject.quartiles_ms) for subject in subjects]
    yield "samples", [count(len(s.samples_ms)) if s.samples_ms else "" for s in subjects]
    yield "outliers", [count(record.outliers) if record else "" for record in records]
    yield "second clock ms", [plain(record.second_clock_ms) if record else "" for record in records]
    yield "events beside it ms", [plain(record.beside_ms) if record else "" for record in records]
    yield "host ms", [plain(record.host_ms) if record else "" for record in records]


def _samples(subjects: tuple[Timed, ...]) -> tuple[Fold, ...]:
    lines = [
        f"{subject.name}: {' '.join(plain(value, 5) for value in subject.samples_ms)}"
        for subject in subjects
        if subject.samples_ms
    ]
    title = "All samples, ms; the same position is the same moment"
    return (Fold(title=title, text="\n".join(lines)),) if lines else ()


def _limit_facts(timing: Timing) -> Iterator[Fact]:
    if timing.limit is not None:
        yield from _facts_of_limit(timing.limit)
    elif timing.minimal_bytes is not None:
        yield Fact("bytes to move at least", _bytes(timing.minimal_bytes))
    if timing.gbps is not None:
        yield Fact("these bytes over the time", f"{plain(timing.gbps)} GB/s")


def _facts_of_limit(limit: Limit) -> Iterator[Fact]:
    text = f"{percent(limit.fraction)} of it reached; {limit.bound} is what limits"
    yield Fact("limit", f"{plain(limit.limit_ms)} ms; {text}")
    copy = f", at {plain(limit.copy_gbps)} GB/s" if limit.copy_gbps is not None else ""
    text = f"{_bytes(limit.minimal_bytes)}, {limit.source}{copy}"
    yield Fact("bytes to move at least", text)
    if limit.minimal_flops:
        rate = ""
        if limit.flops_per_s is not None:
            rate = f", at {plain(limit.flops_per_s / 1e12)} TFLOP/s"
            rate += f" ({limit.rate})" if limit.rate else ""
        gflop = plain(limit.minimal_flops / 1e9)
        yield Fact("operations of matrix products", f"{gflop} GFLOP{rate}")


def _clock_facts(clock: SecondClock | None) -> Iterator[Fact]:
    if clock is not None:
        text = (
            f"{clock.name}, {count(clock.calls)} cold calls of each subject; two events add "
            f"{plain(clock.events_us, 3)} us to a time, which is taken off"
        )
        yield Fact("second clock", text)


def _confirmation_facts(found: Confirmation | None) -> Iterator[Fact]:
    if found is None:
        return
    looked_at = "outputs looked at in place" if found.outputs == "in place" else "outputs copied"
    text = (
        f"a call takes at most {plain(found.at_most_ms)} ms, from {count(found.batches)} batches "
        f"of {count(found.calls)} verified calls, {looked_at}, "
        f"{plain(found.overhead_ms, 3)} ms of waiting taken off each batch"
    )
    yield Fact("the supervisor's clock", text)
    if found.claimed_ms is not None:
        yield Fact("what was claimed", f"{plain(found.claimed_ms)} ms")
    if found.at_least_ms:
        yield Fact("what was borne out", f"a call takes at least {plain(found.at_least_ms)} ms")
    if found.host_bound:
        text = "calls in a row take as long as their own Python and launches"
        yield Fact("bound by the host", text)
    if found.unconfirmed:
        text = "the claim was not borne out: the time of calls in a row is quoted"
        yield Fact("not confirmed", text)


def _condition_facts(found: Conditions) -> Iterator[Fact]:
    ranges = (
        ("multiprocessors' clock", found.sm_mhz, "MHz"),
        ("memory's clock", found.memory_mhz, "MHz"),
        ("temperature", found.temperature_c, "°C"),
    )
    for name, pair, unit in ranges:
        if pair is not None:
            low, high = pair
            text = f"{low}" if low == high else f"{low} to {high}"
            yield Fact(name, f"{text} {unit}")
    if found.power_w is not None:
        yield Fact("power at most", f"{plain(found.power_w, 3)} W")
    reasons = ", ".join(found.throttled) or "no reason held"
    yield Fact("lowered clocks", reasons)
    if found.repeated_blocks:
        yield Fact("blocks measured again", count(found.repeated_blocks))


def _bytes(value: int) -> str:
    return f"{count(value)} B ({byte_size(value)})"


def _pair(pair: tuple[float, float] | None) -> Cell:
    if pair is None:
        return ""
    low, high = pair
    return Markup("{}&nbsp;to&nbsp;{}").format(plain(low), plain(high))
