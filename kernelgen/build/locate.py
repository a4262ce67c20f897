"""From a line of a generated C++ or CUDA file back to the line of the solution that holds it."""

import functools
import itertools
import re
from collections.abc import Iterable

# A text may be one line many times over. Among so many equal ones, none is sure.
_MOST_EQUAL = 1000
_LONGEST_RUN = 500
_TRIPLE_QUOTES = re.compile(r"\"\"\"|'''")


@functools.lru_cache(maxsize=4)
def _held(solution_text: str) -> tuple[tuple[str, int], ...]:
    """Return the lines of a solution, each with its 1-based row; what quotes divide is several."""
    return tuple(
        (_bare(part), row)
        for row, line in enumerate(solution_text.split("\n"), 1)
        for part in _TRIPLE_QUOTES.split(line)
    )


def _bare(line: str) -> str:
    """Return a line without what a string around it adds: quotes, a line's end, doubled braces."""
    inside = line.strip().strip("\"'").removesuffix("\\n")
    return inside.strip().replace("{{", "{").replace("}}", "}")


def find_row(generated_text: str, line: int, solution_text: str) -> int | None:
    """Return the solution's row whose text is a generated file's line, or None if none is sure.

    Among equal lines the one with the longest run of equal neighbours wins; a tie is no answer. A
    line without an equal, such as one that an f-string filled in, is found by both its neighbours.

    `line` is 1-based.
    """
    generated = [_bare(text) for text in generated_text.split("\n")]
    if not 1 <= line <= len(generated):
        return None
    held = _held(solution_text)
    texts = [text for text, _ in held]
    here = line - 1
    position = _best(generated, here, texts) if generated[here] else None
    if position is not None:
        return held[position][1]
    if 0 < here < len(generated) - 1:
        above, below = _best(generated, here - 1, texts), _best(generated, here + 1, texts)
        if above is not None and below is not None:
            row = held[above][1] + 1
            return row if held[below][1] == row + 1 else None
    return None


def find_literal(value: str, solution_text: str) -> int | None:
    """Return the row of the first string that is a value, or None."""
    return _row_of(rf"([\"'])\s*{re.escape(value.strip())}\s*\1", solution_text)


def find_declaration(name: str, solution_text: str) -> int | None:
    """Return the row of the first line with a function's name before a parenthesis, or None."""
    return _row_of(rf"\b{re.escape(name)}\s*\(", solution_text)


def _row_of(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def _best(generated: list[str], here: int, texts: list[str]) -> int | None:
    equal = [at for at, text in enumerate(texts) if text == generated[here]]
    if len(equal) > _MOST_EQUAL:
        return None
    scored = sorted(((_run(generated, here, texts, at), at) for at in equal), reverse=True)
    if not scored or (len(scored) > 1 and scored[0][0] == scored[1][0]):
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
