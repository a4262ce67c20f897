"""Python source as text: parsed, never run."""

import ast
import threading
import warnings

PARSING = threading.Lock()
"""Held while Python's parser is at work: which warnings it may raise is the whole process's matter,
and one thread would put another one's filters back."""


class NotPythonError(Exception):
    """A text that Python cannot compile.

    Args:
        line: 1-based line of the text.
        reason: Python's own words, or ours where Python has none.
        source_line: the offending line without its indentation, or "".
    """

    def __init__(self, line: int, reason: str, source_line: str) -> None:
        self.line, self.reason, self.source_line = line, reason, source_line
        shown = f" in `{source_line}`" if source_line else ""
        super().__init__(reason + shown)


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a module.

    The text is also compiled, because Python finds some errors, such as a `return` outside a
    function, only then. Nothing of it is run.

    Raises:
        NotPythonError: the text does not compile.
    """
    if "\0" in text:
        raise NotPythonError(text.count("\n", 0, text.index("\0")) + 1, "a null byte", "")
    try:
        with PARSING, warnings.catch_warnings():
            # A doubtful escape in a string is Python's to report when the text is run, not ours.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.removeprefix("\ufeff"))
            compile(tree, "<source>", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = max(error.lineno or 1, 1)
        raise NotPythonError(line, error.msg, _line_of(text, line)) from error
    except (RecursionError, MemoryError) as error:
        raise NotPythonError(1, "nested too deeply for Python's parser", "") from error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise NotPythonError(line, "a lone surrogate, which is no character", "") from error
    return tree


def _line_of(text: str, line: int) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[line - 1].strip()[:120] if line <= len(lines) else ""
