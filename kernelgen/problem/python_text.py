"""Python source: parsed and compiled, never run; and the names that it binds and lacks."""

import ast
import builtins
import dis
import io
import itertools
import symtable
import threading
import tokenize
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CodeType

import msgspec

# A text up to here is compiled as it is; a longer one if it has no more words and signs than that.
_SHORT_CHARACTERS = 100_000
_MOST_TOKENS = 100_000
_COMPILING = threading.Lock()
# With the names that a module and a class are given beside the built-in ones.
GIVEN = frozenset(dir(builtins)) | {
    "__annotations__", "__builtins__", "__cached__", "__class__", "__file__", "__module__",
    "__path__", "__qualname__",
}  # fmt: skip
# Imports that every problem and every solution has.
USUAL_IMPORTS = {
    "import torch",
    "import torch.nn as nn",
    "from torch import nn",
    "import torch.nn.functional as F",
    "from torch.nn import functional as F",
}
_LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")


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


class NameUse(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A use of a name: the first one in its scope."""

    line: int
    name: str


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a module.

    The text is also compiled, because Python finds some errors, such as a `return` outside a
    function, only then. Nothing of it is run.

    Raises:
        NotPythonError: the text does not compile.
    """
    if "\0" in text:
        raise NotPythonError(text.count("\n", 0, text.index("\0")) + 1, "a null byte", "")
    if len(text) > _SHORT_CHARACTERS:
        # More takes the compiler seconds and gigabytes; long texts in quotes are one token.
        for token in itertools.islice(tokens_of(text), _MOST_TOKENS, None):
            reason = f"more than {_MOST_TOKENS} words and signs, too many to be checked"
            raise NotPythonError(token.start[0], reason, "")
    try:
        with _compiling():
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


def tokens_of(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the first tokens of a text, as many as are looked at, as far as it is Python."""
    # Text that is not Python is the compiler's to say.
    with suppress(SyntaxError, tokenize.TokenError):
        found = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from itertools.islice(found, _MOST_TOKENS + 1)


def undefined_names(text: str, tree: ast.Module) -> tuple[NameUse, ...]:
    """Return the uses of global names that a module neither defines nor imports.

    The compiler decides what is global, so that comprehensions, class bodies, closures, walrus and
    match bind as they do when the code runs, and annotations that are never evaluated use nothing.
    A star import may define anything, so a module with one has no undefined names.
    """
    if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree)):
        return ()
    known = GIVEN | bound_names(text)
    at_once, later = name_uses(tree)
    return tuple(use for use in sorted({*at_once, *later}) if use.name not in known)


def name_uses(tree: ast.Module) -> tuple[frozenset[NameUse], frozenset[NameUse]]:
    """Return the uses of global names, built-in ones included, by a module's code and its scopes'.

    What a scope has bound in the lines above is no use of a global name.
    """
    with _compiling():
        module = compile(tree, "<source>", "exec", dont_inherit=True, optimize=0)
    waiting, found = [module], [set[NameUse](), set[NameUse]()]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        found[code is not module] |= _global_uses(code)
    return frozenset(found[0]), frozenset(found[1])


def bound_names(text: str) -> frozenset[str]:
    """Return the names that a module binds at its top level, imports included."""
    with _compiling():
        top = symtable.symtable(text.removeprefix("\ufeff"), "<source>", "exec")
    names = set()
    waiting = [top]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        # Not by `get_symbols`, which looks for each among all of the table's functions.
        for symbol in itertools.starmap(symtable.Symbol, table._table.symbols.items()):  # type: ignore[attr-defined]  # noqa: SLF001
            here = table is top or symbol.is_declared_global()
            if here and (symbol.is_assigned() or symbol.is_imported()):
                names.add(symbol.get_name())
    return frozenset(names)


def needed_by(names: Collection[str], body: Sequence[ast.stmt]) -> list[int]:
    """Return the places of a module's statements that bind names, or what such ones name."""
    bound = [bound_names(ast.unparse(node)) for node in body]
    found, wanted = set[int](), set(names)
    while more := {n for n, binds in enumerate(bound) if not wanted.isdisjoint(binds)} - found:
        found |= more
        named = (node for n in more for node in ast.walk(body[n]) if isinstance(node, ast.Name))
        wanted.update(node.id for node in named)
    return sorted(found)


def _global_uses(code: CodeType) -> set[NameUse]:
    """Return the global names that a scope's code loads, with the line of the first use."""
    lines = dict(dis.findlinestarts(code))
    line = code.co_firstlineno
    loaded: dict[str, int] = {}
    stored = set()
    # Its constants matter to nobody, and to write one of them out may take long or fail.
    bare = code.replace(co_consts=(None,) * len(code.co_consts))
    for instruction in dis.get_instructions(bare):
        line = lines.get(instruction.offset) or line
        name = instruction.argval
        # Only modules and class bodies store by name, and what they have stored is their own.
        if instruction.opname in _LOADS and name not in stored:
            loaded[name] = min(line, loaded.get(name, line))
        elif instruction.opname == "STORE_NAME":
            stored.add(name)
    return {NameUse(name=name, line=line) for name, line in loaded.items()}


@contextmanager
def _compiling() -> Iterator[None]:
    """Let one thread at a time at Python's compiler, and keep its warnings quiet.

    A doubtful escape in a string is Python's to report when the text is run, not ours. Warnings are
    the whole process's matter: one thread would put another one's filters back.
    """
    with _COMPILING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _line_of(text: str, line: int) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[line - 1].strip()[:120] if line <= len(lines) else ""
