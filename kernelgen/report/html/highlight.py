"""A solution's source with its words coloured: Python, and the C++ or CUDA in its strings."""

import itertools
import re
import time
from collections.abc import Iterable, Iterator
from functools import cache

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String, _TokenType

from kernelgen.report.printable import visible

# Beyond this a source is shown in one colour: no kernel is so long, and the page has to open.
_MOST_CHARACTERS = 300_000
# Limit of a text that is made to be slow to read.
_MOST_SECONDS = 3.0
_LOOKS_LIKE_CPP = re.compile(
    r'#include\b|#pragma\b|__global__|__device__|extern "C"|\btemplate ?<|\bstd::|\btorch::Tensor'
    r"|^\s*(?:static |inline )*(?:void|float|int|double) \w+\(",
    re.MULTILINE,
)
_QUOTED = re.compile(r'([a-zA-Z]{0,2})("""|\'\'\')(.*)(\2)', re.DOTALL)
# The most telling kinds alone: each coloured word costs bytes, and a page holds many sources.
_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "p"),
    (Comment.PreprocFile, "s"),
    (Comment, "c"),
    (Keyword.Type, "t"),
    (Keyword.Constant, "n"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Decorator, "p"),
    (Name.Function, "d"),
    (Name.Class, "d"),
    (Name.Builtin, "t"),
    (String, "s"),
    (Number, "n"),
    (Literal, "s"),
)

Tokens = Iterable[tuple[_TokenType, str]]


def highlighted(source: str) -> Markup:
    """Return a source as escaped text in which words have the classes of `page.css`.

    Characters that cannot be seen are shown as Python's escapes. A source that is too long, or
    takes too long to read, comes without colours.
    """
    text = visible(source)
    if len(text) > _MOST_CHARACTERS:
        return escape(text)
    try:
        return Markup("").join(_words(_in_time(_tokens(text))))
    except TimeoutError:
        return escape(text)


def _words(tokens: Tokens) -> Iterator[Markup]:
    """Yield neighbouring tokens of one colour as one element."""
    for class_, group in itertools.groupby(tokens, lambda token: _class_of(token[0])):
        text = "".join(value for _, value in group)
        yield Markup("<i class={}>{}</i>").format(class_, text) if class_ else escape(text)


def _in_time(tokens: Tokens) -> Tokens:
    """Yield tokens; raise a TimeoutError once that takes too long."""
    end = time.monotonic() + _MOST_SECONDS
    for token in tokens:
        if time.monotonic() > end:
            raise TimeoutError
        yield token


def _tokens(text: str) -> Iterator[tuple[_TokenType, str]]:
    """Yield the tokens of Python; those of a string that holds C++ are C++'s."""
    lexed = _lexed(PythonLexer, text)
    for quoted, tokens in itertools.groupby(lexed, lambda token: token[0] in String):
        if quoted:
            yield from _string(list(tokens))
        else:
            yield from tokens


def _string(tokens: list[tuple[_TokenType, str]]) -> Iterator[tuple[_TokenType, str]]:
    found = _QUOTED.fullmatch("".join(value for _, value in tokens))
    if found is None or not _LOOKS_LIKE_CPP.search(found.group(3)):
        yield from tokens
        return
    yield String, found.group(1) + found.group(2)
    yield from _lexed(CudaLexer, found.group(3))
    yield String, found.group(4)


def _lexed(lexer: type[Lexer], text: str) -> Tokens:
    # As it is: else the first and last empty lines would be lost, and with them the line numbers.
    tokens: Tokens = lexer(stripnl=False, ensurenl=False).get_tokens(text)
    return tokens


@cache
def _class_of(kind: _TokenType) -> str:
    return next((class_ for known, class_ in _CLASSES if kind in known), "") if kind else ""
