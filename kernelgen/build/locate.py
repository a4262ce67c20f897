"""From a line of a generated C++ or CUDA file back to the line of the solution that holds it."""

import ast
import functools
import io
import itertools
import re
import tokenize
from collections.abc import Iterable

import msgspec

# A text may be one line many times over. Among so many equal ones, none is sure.
_MOST_EQUAL = 1000
_LONGEST_RUN = 500


class TextLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line inside a string of a solution: its content, and its 1-based row in the file."""

    text: str
    row: int


@functools.lru_cache(maxsize=4)
def string_lines(solution_text: str) -> tuple[TextLine, ...]:
    """Return the lines of all string literals in order, escapes resolved.

    Adjacent literals that are joined without a line break between them stay separate lines. A file
    that cannot be split into tokens counts as one long string.
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(solution_text).readline))
    except (tokenize.TokenError, SyntaxError):
        rows = enumerate(solution_text.splitlines(), 1)
        return tuple(TextLine(text=text, row=row) for row, text in rows)
    # From Python 3.12 on, the literal parts of an f-string are tokens of their own.
    part = getattr(tokenize, "FSTRING_MIDDLE", None)
    lines: list[TextLine] = []
    for token in tokens:
        if token.type == tokenize.STRING:
            lines += _literal_lines(token)
        elif part is not None and token.type == part:
            lines += _numbered(token.string, token.start[0])
    return tuple(lines)


def _literal_lines(token: tokenize.TokenInfo) -> list[TextLine]:
    first, last = token.start[0], token.end[0]
    try:
        value = ast.literal_eval(token.string)
    except (SyntaxError, ValueError):
        # An f-string before Python 3.12: its raw text, where doubled braces stand for one.
        value = token.string.replace("{{", "{").replace("}}", "}")
    if not isinstance(value, str):
        return []
    if value.count("\n") == last - first:
        return _numbered(value, first)
    if first == last:
        return [TextLine(text=text, row=first) for text in value.splitlines()]
    # Escapes shift the lines of the value against the rows of the file: match the rows as written.
    return _numbered(token.string, first)


def _numbered(text: str, first: int) -> list[TextLine]:
    return [TextLine(text=line, row=first + i) for i, line in enumerate(text.split("\n"))]


def find_row(generated_text: str, line: int, solution_text: str) -> int | None:
    """Return the solution's row whose text is a generated file's line, or None if none is sure.

    Among equal lines the one with the longest run of equal neighbours wins; a tie is no answer. A
    line without an equal, such as one that an f-string filled in, is found by both its neighbours.

    `line` is 1-based.
    """
    generated = [text.strip() for text in generated_text.split("\n")]
    if not 1 <= line <= len(generated):
        return None
    held = string_lines(solution_text)
    texts = [entry.text.strip() for entry in held]
    here = line - 1
    position = _best(generated, here, texts) if generated[here] else None
    if position is not None:
        return held[position].row
    if 0 < here < len(generated) - 1:
        above, below = _best(generated, here - 1, texts), _best(generated, here + 1, texts)
        if above is not None and below is not None:
            row = held[above].row + 1
            return row if held[below].row == row + 1 else None
    return None


def find_literal(value: str, solution_text: str) -> int | None:
    """Return the row of the first string line that is exactly a value, or None."""
    lines = string_lines(solution_text)
    return next((entry.row for entry in lines if entry.text.strip() == value.strip()), None)


def find_declaration(name: str, solution_text: str) -> int | None:
    """Return the row of the first string line with a function's name before a parenthesis."""
    pattern = re.compile(rf"\b{re.escape(name)}\s*\(")
    lines = string_lines(solution_text)
    return next((entry.row for entry in lines if pattern.search(entry.text)), None)


def _best(generated: list[str], here: int, texts: list[str]) -> int | None:
    equal = [at for at, text in enumerate(texts) if text == generated[here]]
    if len(equal) > _MOST_EQUAL:
        return None
    scored = sorted(((_run(generated, here, texts, at), at) for at in equal), reverse=True)
    if not scored:
        return None
    if len(scored) > 1 and scored[0][0] == scored[1][0]:
        return None
    return scored[0][1]


def _run(generated: list[str], here: int, texts: list[str], at: int) -> int:
    """Return how many lines around a match agree, without a gap, up to a number."""
    most = _LONGEST_RUN
    above = generated[max(0, here - most) : here], texts[max(0, at - most) : at]
    below = generated[here + 1 : here + 1 + most], texts[at + 1 : at + 1 + most]
    return _agreeing(*map(reversed, above)) + 1 + _agreeing(*below)


def _agreeing(some: Iterable[str], others: Iterable[str]) -> int:
    pairs = zip(some, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
