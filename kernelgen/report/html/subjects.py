"""Who was timed, and how the samples lie: from what a report says, or from its raw samples."""

from collections.abc import Iterator
from statistics import median

import msgspec

from kernelgen.grading.timing.statistics import median_interval, quartiles
from kernelgen.grading.timing.times import CANDIDATE, Subject, Timing
from kernelgen.report.numbers import count, percent, plain


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One subject.

    Attributes:
        name: `candidate` or a baseline's.
        record: what the report says of it; None in reports of before there were such records.
        samples_ms: raw times, none if they are not in the report.
        median_ms: of the samples, as reported.
        quartiles_ms: first and third; None without samples or record.
        interval_ms: 95 % interval of the median; None with fewer samples than it takes.
    """

    name: str
    record: Subject | None
    samples_ms: tuple[float, ...]
    median_ms: float
    quartiles_ms: tuple[float, float] | None
    interval_ms: tuple[float, float] | None


def timed_subjects(timing: Timing) -> tuple[Timed, ...]:
    """Return the candidate and then each baseline, in the report's order."""
    reported = {CANDIDATE: timing.candidate_ms, "eager": timing.eager_ms}
    reported["compile"] = timing.compile_ms
    given = [name for name, value in reported.items() if value is not None]
    names = dict.fromkeys((*given, *timing.subjects, *timing.samples))
    found = (_timed(name, timing, reported.get(name)) for name in names)
    return tuple(subject for subject in found if subject is not None)


def _timed(name: str, timing: Timing, reported_ms: float | None) -> Timed | None:
    record = timing.subjects.get(name)
    samples = timing.samples.get(name, ())
    spread = quartiles(samples) if samples else None
    middle = median(samples) if samples else reported_ms
    if record is not None:
        middle, spread = record.median_ms, record.quartiles_ms
    if middle is None:
        return None
    return Timed(
        name=name,
        record=record,
        samples_ms=samples,
        median_ms=middle,
        quartiles_ms=spread,
        interval_ms=median_interval(samples),
    )


def subject_table(timing: Timing) -> list[tuple[str, list[str]]]:
    """Return the columns of the table of subjects, each with its heading and without empty ones.

    A heading that begins with `#` is of numbers.
    """
    return [(heading, cells) for heading, cells in _columns(timing) if any(cells)]


def _columns(timing: Timing) -> Iterator[tuple[str, list[str]]]:
    subjects = timed_subjects(timing)
    records = [subject.record for subject in subjects]
    yield "subject", [subject.name for subject in subjects]
    yield "#median ms", [plain(subject.median_ms) for subject in subjects]
    yield "#95 % interval", [_pair(subject.interval_ms) for subject in subjects]
    if timing.limit is not None:
        limit_ms = timing.limit.limit_ms
        shares = [limit_ms / s.median_ms if s.median_ms > 0 else None for s in subjects]
        yield "#of the limit", ["" if share is None else percent(share) for share in shares]
    yield "#quartiles", [_pair(subject.quartiles_ms) for subject in subjects]
    yield "#samples", [count(len(s.samples_ms)) if s.samples_ms else "" for s in subjects]
    yield "#outliers", [count(record.outliers) if record else "" for record in records]
    yield (
        "#second clock ms",
        [plain(record.second_clock_ms) if record else "" for record in records],
    )
    yield "#events beside it ms", [plain(record.beside_ms) if record else "" for record in records]
    yield "#host ms", [plain(record.host_ms) if record else "" for record in records]
    yield "what it is", [record.what if record else "" for record in records]


def _pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}".join(map(plain, pair))
