"""A model's answer as it came: Python in a fenced block of Markdown, with prose around it."""

import re

from kernelgen.problem.python_text import NotPythonError, parse_python

_FENCE = re.compile(r"\s*(`{3,})([^`]*)")
_DEFINES = re.compile(r"\s*(?:class\s+ModelNew\b|ModelNew\s*[:=])")


def code_of(text: str) -> str:
    """Return what is to be graded: the last fenced block that defines ModelNew.

    The lines around it become empty, so that every line keeps its number. A text that is Python, or
    that has no such block, is returned as it is.
    """
    if "```" not in text:
        return text
    try:
        parse_python(text)
    except NotPythonError:
        lines = text.split("\n")
        blocks = [block for block in _blocks(lines) if any(_DEFINES.match(lines[n]) for n in block)]
        if not blocks:
            return text
        last = blocks[-1]
        return "\n".join(line if number in last else "" for number, line in enumerate(lines))
    return text


def _blocks(lines: list[str]) -> list[range]:
    """Return the lines of each block, fences excluded; one that is never closed ends the text."""
    blocks: list[range] = []
    fence, start = "", 0
    for number, line in enumerate(lines):
        found = _FENCE.fullmatch(line.removeprefix("\ufeff").rstrip())
        if found is None:
            continue
        if not fence:
            fence, start = found.group(1), number + 1
        elif found.group(1).startswith(fence) and not found.group(2):
            blocks.append(range(start, number))
            fence = ""
    return [*blocks, range(start, len(lines))] if fence else blocks
