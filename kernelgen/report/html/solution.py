"""A solution's own section: the verdict, and everything that is known behind it."""

from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.verdict import Owner, Verdict
from kernelgen.report.html.entry import Entry
from kernelgen.report.html.highlight import highlighted
from kernelgen.report.html.parts import parts_of
from kernelgen.report.html.times import time_parts
from kernelgen.report.html.view import Anchor, Part
from kernelgen.report.numbers import byte_size, count, interval, plain, times
from kernelgen.report.printable import printable_block

# What a page carries of a reason; the JSON report has all of it.
_MOST_REASON = 20_000
_MOST_WARNING = 4000


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A solution's text.

    Attributes:
        title: its length.
        lines: as many numbers as it has lines, one a line.
        code: highlighted; "" where another section has the same text.
        same_as: that section, or None.
    """

    title: str
    lines: str
    code: Markup
    same_as: Anchor | None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of one verdict.

    Attributes:
        entry: the verdict, its address, its name and its status.
        gist: its time and speedups in a line, or the first line of its reason.
        blame: whose doing a failure is, where it is not the candidate's.
        reason: all of it; "" for a pass, and where the gist is all of it.
        warnings: sentences.
        parts: what was measured.
        source: its text; None if the report has none.
        unfolded: shown from the start.
    """

    entry: Entry
    gist: str
    blame: str
    reason: str
    warnings: tuple[str, ...]
    parts: tuple[Part, ...]
    source: Source | None
    unfolded: bool


def sections_of(entries: Sequence[Entry], *, unfolded: bool) -> Iterator[Section]:
    """Yield the sections in order; a text that several solutions share is in the first of them."""
    seen: dict[str, Anchor] = {}
    for entry in entries:
        verdict = entry.verdict
        gist, reason = _gist(verdict), _cut(verdict.reason, _MOST_REASON)
        yield Section(
            entry=entry,
            gist=gist,
            blame=_blame(verdict),
            reason="" if reason == gist else reason,
            warnings=tuple(_cut(warning, _MOST_WARNING) for warning in verdict.warnings),
            parts=tuple(_parts(entry)),
            source=_source(verdict, entry.anchor, seen),
            unfolded=unfolded,
        )


def _parts(entry: Entry) -> Iterator[Part]:
    if entry.verdict.timing is not None:
        yield from time_parts(entry.verdict.timing)
    yield from parts_of(entry.verdict, entry.plan)


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


def _blame(verdict: Verdict) -> str:
    if verdict.passed or verdict.owner is Owner.CANDIDATE:
        return ""
    return f"This is the {verdict.owner.value}'s doing and not the solution's."


def _cut(text: str, most: int) -> str:
    shown = printable_block(text).strip()
    if len(shown) <= most:
        return shown
    return f"{shown[:most]}\n({count(len(shown) - most)} more characters; JSON has them)"


def _source(verdict: Verdict, anchor: Anchor, seen: dict[str, Anchor]) -> Source | None:
    text = verdict.source.rstrip("\n")
    if not text:
        return None
    lines = text.count("\n") + 1
    title = f"Source, {count(lines)} lines, {byte_size(len(text.encode('utf-8', 'replace')))}"
    if text in seen:
        return Source(title=title, lines="", code=Markup(), same_as=seen[text])
    seen[text] = anchor
    numbers = "\n".join(str(number) for number in range(1, lines + 1))
    return Source(title=title, lines=numbers, code=highlighted(text), same_as=None)
