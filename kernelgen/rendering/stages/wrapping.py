"""Long lines of C and Python, folded as a person would."""

import re

_COLUMNS = 100
_BREAK = re.compile(r", |&& |\? |; (?=\w)")


def wrapped(source: str) -> str:
    """Return source with lines of at most 100 columns, where they have a place to be folded at.

    A line of C that is a comment, or has one, stays. Python is folded where it is in brackets: its
    lines here begin with a short name or a few, before a call.
    """
    return "\n".join(part for line in source.split("\n") for part in _parts(line))


def _parts(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    parts = []
    while len(line) > _COLUMNS and "//" not in line:
        places = [found.end() for found in _BREAK.finditer(line) if found.end() <= _COLUMNS]
        # A short list stays in one line.
        ends = [at for at in places if line.count("[", 0, at) == line.count("]", 0, at)] or places
        if not ends or ends[-1] <= len(indent):
            break
        parts.append(line[: ends[-1]].rstrip())
        line = indent + line[ends[-1] :]
    return [*parts, line]
