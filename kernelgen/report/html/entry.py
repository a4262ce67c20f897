"""The verdicts of a page: each with an address of its own, and what tells equal names apart."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Verdict
from kernelgen.report.columns import tone
from kernelgen.report.printable import printable_block
from kernelgen.report.reading import Recorded, by_device

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
