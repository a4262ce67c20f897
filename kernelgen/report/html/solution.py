"""The solutions of a page, each with an address of its own: its gist, its reason, its source."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.timing.statistics import median_interval
from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import Verdict
from kernelgen.report.console import kernelbench_name, number_order, problem_of
from kernelgen.report.json_report import Recorded, by_device
from kernelgen.report.numbers import count, interval, percent, plain, times
from kernelgen.report.printable import printable_block

# The part of a log that a page carries; the JSON report has all of it.
_MOST_LOG = 65_536
_PREFIX = "v-"
_LONGEST = 80


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of a page.

    Attributes:
        plan: that its file was rendered by, if its run has it.
        anchor: its section's id: ASCII letters, digits and `-`, so that it can stand in a URL.
        name: `1/19 ReLU #0` by KernelBench's naming, else its file, with the folder set back and
            places where a line may break.
        where: its device and its file, as far as the page holds several.
        same_as: id of the section before it that shows the same source, or "".
    """

    verdict: Verdict
    plan: PlanRecord | None
    anchor: str
    name: Markup
    where: str
    same_as: str


def gist(verdict: Verdict) -> str:
    """Return a verdict's time and speedups in a line, or the first line of its reason."""
    if not verdict.passed:
        return printable_block(verdict.reason).strip().partition("\n")[0][:200]
    if verdict.timing is None:
        return "not timed"
    speedups = "".join(
        f" · {times(found.median)} {interval(found)} against {name}: {found.says}"
        for name, found in verdict.timing.speedup.items()
    )
    return f"{plain(verdict.timing.candidate_ms)} ms{speedups}"


def cut(text: str, most: int) -> str:
    """Return a text of so many characters at most, with a line that says what was left out."""
    shown = printable_block(text).strip()
    if len(shown) <= most:
        return shown
    return f"{shown[:most]}\n({count(len(shown) - most)} more characters; JSON has them)"


def log_end(verdict: Verdict) -> tuple[str, str] | None:
    """Return the end of what a candidate printed, with its title; None if it printed nothing."""
    text = printable_block(verdict.log).strip("\n")
    title = "The end of what it printed"
    if len(text) > _MOST_LOG:
        title += f"; the last {count(_MOST_LOG)} of {count(len(text))} characters, JSON has all"
    return (title, text[-_MOST_LOG:]) if text else None


def entries_of(recorded: Sequence[Recorded]) -> tuple[Entry, ...]:
    """Return all verdicts, those of one device together."""
    pairs = by_device(recorded)
    devices = list(dict.fromkeys(verdict.device for _, verdict in pairs))
    pairs.sort(key=lambda pair: (devices.index(pair[1].device), _order(pair[1])))
    # A solution that did not come as far as a device has none.
    several_devices = len({verdict.device for _, verdict in pairs if verdict.device}) > 1
    several_files = len(recorded) > 1
    taken: Counter[str] = Counter()
    shown: dict[str, str] = {}
    entries = []
    for record, verdict in pairs:
        told = (verdict.device if several_devices else "", record.name if several_files else "")
        anchor = _anchor(verdict.solution, taken)
        first = shown.setdefault(verdict.source.rstrip("\n"), anchor)
        entries.append(
            Entry(
                verdict=verdict,
                plan=record.run.plan_for(verdict),
                anchor=anchor,
                name=_breakable(kernelbench_name(verdict.problem, verdict.solution))
                or file_name(verdict.solution),
                where=", ".join(part for part in told if part),
                same_as="" if first == anchor else first,
            )
        )
    return tuple(entries)


def _order(verdict: Verdict) -> list[str]:
    return number_order(problem_of(verdict.problem, verdict.solution))


def file_name(path: str) -> Markup:
    """Return a path with its folder set back; a line may break after each `/` and `_`."""
    folder, slash, name = printable_block(path).rpartition("/")
    set_back = Markup("<span class=folder>{}</span><wbr>").format(_breakable(folder + slash))
    return (set_back if folder or slash else Markup()) + _breakable(name)


def _breakable(text: str) -> Markup:
    return Markup("<wbr>").join(re.split(r"(?<=[/_])(?=.)", text))


def _anchor(solution: str, taken: Counter[str]) -> str:
    """Return an address made of the file's name; the second of a name ends in `--2`."""
    bare = re.sub(r"[^a-zA-Z0-9]+", "-", solution.removesuffix(".py")).strip("-").lower()
    # The end of a path says most. A name alone never holds `--`, so that no two can meet.
    name = bare[-_LONGEST:].strip("-") or "solution"
    taken[name] += 1
    return f"{_PREFIX}{name}--{taken[name]}" if taken[name] > 1 else f"{_PREFIX}{name}"


def subject_table(timing: Timing) -> list[tuple[str, list[str]]]:
    """Return the columns of who was timed, each with its heading and without empty ones.

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
    yield "#host ms", [plain(subject.host_ms) for subject in subjects]
    yield "bound by", ["the host" * (name in timing.host_bound) for name in timing.subjects]
    yield "what it is", [subject.what for subject in subjects]


def _pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}".join(map(plain, pair))
