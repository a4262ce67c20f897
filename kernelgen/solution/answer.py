"""A model's answer as it came: which part of it is the Python that is to be graded."""

import ast
import itertools
import re
from collections.abc import Iterator

from kernelgen.problem.python_text import NotPythonError, parse_python

Part = dict[int, str]
"""Some lines of a text by their numbers, counted from 0."""

# A fence of Markdown, behind the indentation, the list's mark or the quote in which it stands.
_FENCE = re.compile(r"((?:[\s>]|[-*+]\s|\d{1,9}[.)]\s)*)(?:`{3,}[^`]*|~{3,}.*)")
_DEFINES = re.compile(r"\s*(?:class\s+ModelNew\b|ModelNew\s*[:=])")
# How a line of code begins and none of prose; after it a mistake in the code is one of the code.
_CODE = re.compile(r"[\s@]|(?:async|class|def)\b")
# Comments and strings; one that is never closed ends with its line, or with the text. No part can
# match where another may start, so that the search stays linear.
_ENDLESS = re.compile(
    r"#[^\n]*|"
    + "|".join(
        rf"{q}{q}{q}[^{q}\\]*(?:(?:\\.|{q}(?!{q}{q}))[^{q}\\]*)*(?:{q}{q}{q}|\\?\Z)"
        rf"|{q}[^{q}\\\n]*(?:\\.[^{q}\\\n]*)*{q}?"
        for q in "\"'"
    ),
    re.DOTALL,
)
# Python tells of one mistake, and not always of the first one; an answer has a few parts, and a
# text of thousands is none.
_MOST_TRIES = 64


def code_of(text: str) -> str:
    """Return what is to be graded of a text, which is Python or a model's answer in Markdown.

    That is the last part between two fences that is Python and defines ModelNew; else what stands
    before a summary without a fence; else the last part that defines ModelNew, so that its mistake
    is told. The lines around it become empty, so that every line keeps its number. A text that is
    Python, or has none of these, is returned as it is.
    """
    try:
        parse_python(text)
    except NotPythonError as error:
        lines = text.removeprefix("\ufeff").split("\n")
        parts = sorted(filter(_defines, _parts(lines)), key=lambda p: (max(p), -min(p)))
        python = (part for part in parts[: -_MOST_TRIES - 1 : -1] if _is_python(part))
        part = next(python, None) or _before_summary(lines, error.line)
        part = part or (parts[-1] if parts else None)
        return text if part is None else "\n".join(part.get(n, "") for n in range(len(lines)))
    return text


def _defines(part: Part) -> bool:
    return any(map(_DEFINES.match, part.values()))


def _is_python(part: Part) -> bool:
    try:
        parse_python("\n".join(part.values()))
    except NotPythonError:
        return False
    return True


def _parts(lines: list[str]) -> Iterator[Part]:
    """Yield the lines between each two fences, without the indentation of the first.

    A fence in a string is none; but a quote in prose, or in a block that is cut short, begins what
    is no string. So the text is read both ways.
    """
    text = "\n".join(lines)
    for reading in (text, _ENDLESS.sub(lambda found: "\n" * found[0].count("\n"), text)):
        fences = [_FENCE.fullmatch(line.rstrip()) for line in reading.split("\n")]
        marks = [number for number, fence in enumerate(fences) if fence is not None]
        for start, end in itertools.pairwise((-1, *marks, len(lines))):
            fence = fences[start] if start >= 0 else None
            inside = _without("" if fence is None else fence[1], lines[start + 1 : end])
            yield dict(enumerate(inside, start + 1))


def _without(lead: str, lines: list[str]) -> list[str]:
    """Return lines without as much of their indentation as their fence has, if the first has it."""
    signs = " \t>" if ">" in lead else " \t"
    first = next((line for line in lines if line.strip()), "")
    width = min(len(lead), len(first) - len(first.lstrip(signs)))
    return [re.sub(rf"[{signs}]{{0,{width}}}", "", line, count=1) for line in lines]


def _before_summary(lines: list[str], line: int) -> Part | None:
    """Return what precedes the line at which a text is Python no more, if that is the model."""
    for _ in range(_MOST_TRIES):
        try:
            body = parse_python("\n".join(lines[: line - 1])).body
        except NotPythonError as error:
            line = max(1, min(error.line, line - 1))
            continue
        # A heading of one word is an expression too.
        while body and isinstance(body[-1], ast.Expr) and not isinstance(body[-1].value, ast.Call):
            body.pop()
        end = (body[-1].end_lineno or 0) if body else 0
        part = dict(enumerate(lines[:end]))
        rest = next((one for one in lines[end:] if one.strip()), "")
        return part if _defines(part) and not _CODE.match(rest) else None
    return None
