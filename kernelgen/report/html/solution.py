"""The solutions of a page, each with an address of its own: its gist, its reason, its source."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Verdict
from kernelgen.report.columns import tone
from kernelgen.report.html.highlight import highlighted
from kernelgen.report.numbers import byte_size, count, interval, plain, times
from kernelgen.report.printable import printable_block
from kernelgen.report.reading import Recorded, by_device

# What a page carries of a reason and of a log; the JSON report has all of them.
_MOST_REASON = 20_000
_MOST_LOG = 65_536
_PREFIX = "v-"
_LONGEST = 80


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A status with its sign.

    Attributes:
        sign: one character that says it without colour.
        text: the status.
        tone: class of its colour: `good`, `bad` or `unsure`.
    """

    sign: str
    text: str
    tone: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of a page.

    Attributes:
        verdict: the verdict.
        plan: of its problem, if its run has one.
        anchor: its section's id: ASCII letters, digits and `-`, so that it can stand in a URL.
        name: its file, with the folder set back and places where a line may break.
        where: its device and its file, as far as the page holds several.
        mark: its status.
    """

    verdict: Verdict
    plan: PlanRecord | None
    anchor: str
    name: Markup
    where: str
    mark: Mark


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's text.

    Attributes:
        title: its length.
        lines: as many numbers as it has lines, one a line.
        code: highlighted; "" where another section has the same text.
        same_as: that section's id, or "".
    """

    title: str
    lines: str = ""
    code: Markup = Markup()
    same_as: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of one verdict.

    Attributes:
        entry: the verdict, its plan, its address, its name and its status.
        gist: its time and speedups in a line, or the first line of its reason.
        reason: all of it; "" for a pass, and where the gist is all of it.
        source: its text; None if the report has none.
    """

    entry: Entry
    gist: str
    reason: str
    source: Source | None


def sections_of(entries: Sequence[Entry]) -> Iterator[Section]:
    """Yield the sections in order; a text that several solutions share is in the first of them."""
    seen: dict[str, str] = {}
    for entry in entries:
        gist, reason = _gist(entry.verdict), cut(entry.verdict.reason, _MOST_REASON)
        source = _source(entry.verdict, entry.anchor, seen)
        yield Section(
            entry=entry, gist=gist, reason="" if reason == gist else reason, source=source
        )


def _gist(verdict: Verdict) -> str:
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


def _source(verdict: Verdict, anchor: str, seen: dict[str, str]) -> Source | None:
    text = verdict.source.rstrip("\n")
    if not text:
        return None
    lines = text.count("\n") + 1
    title = f"Source, {count(lines)} lines, {byte_size(len(text.encode('utf-8', 'replace')))}"
    if text in seen:
        return Source(title=title, same_as=seen[text])
    seen[text] = anchor
    numbers = "\n".join(str(number) for number in range(1, lines + 1))
    return Source(title=title, lines=numbers, code=highlighted(text))


def entries_of(recorded: Sequence[Recorded]) -> tuple[Entry, ...]:
    """Return all verdicts, those of one device together."""
    pairs = by_device(recorded)
    # A solution that did not come as far as a device has none.
    several_devices = len({verdict.device for _, verdict in pairs if verdict.device}) > 1
    several_files = len(recorded) > 1
    taken: Counter[str] = Counter()
    entries = []
    for record, verdict in pairs:
        told = (verdict.device if several_devices else "", record.name if several_files else "")
        entries.append(
            Entry(
                verdict=verdict,
                plan=record.run.plan_for(verdict),
                anchor=_anchor(verdict.solution, taken),
                name=file_name(verdict.solution),
                where=", ".join(part for part in told if part),
                mark=_mark(verdict),
            )
        )
    return tuple(entries)


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


def _mark(verdict: Verdict) -> Mark:
    class_ = "good" if verdict.passed else "bad" if verdict.owner.value == "candidate" else "unsure"
    return Mark(sign=tone(verdict).sign, text=verdict.status.value, tone=class_)
