"""C expressions put into others, with the parentheses that they need and no more."""

import re
from collections.abc import Mapping

_TOKEN = re.compile(
    r"\{\w+\}"  # a place
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*"
    r"|\w+(?:(?:::|\.|->)\w+)*(?:<[\w:]+>(?=\())?"
    r"|<<|>>|<=|>=|==|!=|&&|\|\||\S"
)
_LEVELS = {
    **dict.fromkeys("?:", 1),
    "||": 2,
    "&&": 3,
    **dict.fromkeys("|^&", 4),
    **dict.fromkeys(("==", "!="), 5),
    **dict.fromkeys(("<", "<=", ">", ">="), 6),
    **dict.fromkeys(("<<", ">>"), 7),
    **dict.fromkeys("+-", 8),
    **dict.fromkeys("*/%", 9),
}
_UNARY = 10
_PRIMARY = 11


def fill(expression: str, arguments: Mapping[str, str]) -> str:
    """Return an expression with its `{places}` filled.

    A sum with a negative term becomes a difference, which rounds to the same.
    """
    tokens = list(_TOKEN.finditer(expression))
    text, end = "", 0
    for position, token in enumerate(tokens):
        if not token[0].startswith("{"):
            continue
        text += expression[end : token.start()]
        end = token.end()
        argument = arguments[token[0][1:-1]]
        before = [each[0] for each in tokens[:position]]
        after = tokens[position + 1][0] if position + 1 < len(tokens) else ""
        sign = before[-1] if before and before[-1] in "+-" else ""
        level = _level(argument)
        if level < _least_level(before, after):
            argument = f"({argument})"
        elif argument.startswith("-") and sign:
            if _is_unary(before):
                argument = f"({argument})"
            else:
                text = text.removesuffix(f"{sign} ") + ("- " if sign == "+" else "+ ")
                argument = argument[1:]
        text += argument
    return text + expression[end:]


def _least_level(before: list[str], after: str) -> int:
    """Return how tightly an operand between tokens must hold together."""
    least = 0
    if before and _is_unary(before):
        least = _UNARY
    elif before and before[-1] not in "?:":
        least = _LEVELS.get(before[-1], -1) + 1
    if after in {"[", "."}:
        return _PRIMARY
    if after == "?":
        return max(least, _LEVELS["?"] + 1)
    return max(least, 0 if after == ":" else _LEVELS.get(after, 0))


def _is_unary(tokens: list[str]) -> bool:
    """Return whether the last token is an operator before its only operand."""
    if tokens[-1] in {"!", "~"}:
        return True
    starts = len(tokens) == 1 or tokens[-2] in {"(", "[", ",", "!", "~"} or tokens[-2] in _LEVELS
    return tokens[-1] in {"+", "-", "*", "&"} and starts


def _level(expression: str) -> int:
    """Return the level of the operator that an expression does last."""
    seen: list[str] = []
    least, depth = _PRIMARY, 0
    for token in _TOKEN.findall(expression):
        seen.append(token)
        depth += (token in {"(", "["}) - (token in {")", "]"})
        if depth:
            continue
        least = min(least, _UNARY if _is_unary(seen) else _LEVELS.get(token, _PRIMARY))
    return least
