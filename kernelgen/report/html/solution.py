"""A solution's own section: its gist, its reason and its source; the template adds the rest."""

from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.verdict import Verdict
from kernelgen.report.html.entry import Entry
from kernelgen.report.html.highlight import highlighted
from kernelgen.report.numbers import byte_size, count, interval, plain, times
from kernelgen.report.printable import printable_block

# What a page carries of a reason and of a log; the JSON report has all of them.
_MOST_REASON = 20_000
_MOST_LOG = 65_536


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
