"""Markdown made from records: rows of tables, and the generated sections of a document."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

from kernelgen.errors import UserError
from kernelgen.problem.record import digest
from kernelgen.report.printable import printable

CHANGED = "†"
"""Marks a solution that has changed since it was recorded."""

# What would end a cell or start markup. Brackets stay: intervals are written with them.
_SYNTAX = re.compile(r"([\\|*`<])")
_CLOSING = "<!-- /generated -->"


def escaped(text: str) -> str:
    """Return text that a cell shows literally."""
    return _SYNTAX.sub(r"\\\1", printable(text))


def row(cells: Iterable[str]) -> str:
    """Return a table row of escaped cells."""
    return f"| {' | '.join(cells)} |"


def rule(*, numbers: Iterable[bool]) -> str:
    """Return the row below the headings, which aligns columns of numbers to the right."""
    return row("---:" if number else "---" for number in numbers)


def has_changed(path: Path, sha256: str, recorded: str = "") -> bool:
    """Return whether a solution's file differs from the recorded one, or is gone.

    Leading comments do not count where the recorded text is known: a rendered file lists there all
    templates that its problem could use, even those that contributed nothing.
    """
    try:
        present = path.read_bytes()
    except OSError:
        return True
    if digest(present) == sha256:
        return False
    if digest(recorded) != sha256:
        return True
    return _code(present.decode(errors="replace")) != _code(recorded)


def _code(text: str) -> list[str]:
    lines = text.splitlines()
    return list(itertools.dropwhile(lambda line: line.startswith("#") or not line.strip(), lines))


def opening(name: str) -> str:
    """Return the line before a generated section."""
    return f"<!-- generated: {name} -->"


def fill(text: str, name: str, body: str, *, path: Path) -> str:
    """Replace the text between `<!-- generated: NAME -->` and the next `<!-- /generated -->`.

    Raises:
        UserError: the pair of markers is not there exactly once.
    """
    before, *rest = text.split(opening(name))
    if len(rest) != 1 or _CLOSING not in rest[0]:
        raise UserError(
            f"{path}: expected one line '{opening(name)}' and after it a line '{_CLOSING}'; "
            "put both where the generated text belongs"
        )
    after = rest[0].partition(_CLOSING)[2]
    return f"{before}{opening(name)}\n{body.strip()}\n{_CLOSING}{after}"
