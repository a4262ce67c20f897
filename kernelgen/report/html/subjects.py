"""The table of who was timed: medians, and how the samples lie."""

from collections.abc import Iterator

from kernelgen.grading.timing.statistics import median_interval
from kernelgen.grading.timing.times import Timing
from kernelgen.report.numbers import count, percent, plain


def subject_table(timing: Timing) -> list[tuple[str, list[str]]]:
    """Return its columns, each with its heading and without empty ones.

    A heading that begins with `#` is of numbers; the rows are the candidate, then the baselines.
    """
    return [(heading, cells) for heading, cells in _columns(timing) if any(cells)]


def _columns(timing: Timing) -> Iterator[tuple[str, list[str]]]:
    subjects = timing.subjects.values()
    samples = [timing.samples.get(name, ()) for name in timing.subjects]
    yield "subject", list(timing.subjects)
    yield "#median ms", [plain(subject.median_ms) for subject in subjects]
    yield "#95 % interval", [_pair(median_interval(times_ms)) for times_ms in samples]
    if timing.limit is not None:
        limit_ms = timing.limit.limit_ms
        shares = [limit_ms / s.median_ms if s.median_ms > 0 else None for s in subjects]
        yield "#of the limit", ["" if share is None else percent(share) for share in shares]
    yield "#quartiles", [_pair(subject.quartiles_ms) for subject in subjects]
    yield "#samples", [count(len(times_ms)) if times_ms else "" for times_ms in samples]
    yield "#outliers", [count(subject.outliers) for subject in subjects]
    yield "#second clock ms", [plain(subject.second_clock_ms) for subject in subjects]
    yield "#events beside it ms", [plain(subject.beside_ms) for subject in subjects]
    yield "#host ms", [plain(subject.host_ms) for subject in subjects]
    yield "what it is", [subject.what for subject in subjects]


def _pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}".join(map(plain, pair))
