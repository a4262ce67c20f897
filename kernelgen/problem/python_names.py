"""Which names a Python text uses without defining them.

Python's own symbol tables decide what is global, so comprehensions, class bodies, closures, walrus
and match bind as they do when the text runs.
"""

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

import msgspec

from kernelgen.problem.python_text import PARSING

_GIVEN = frozenset(dir(builtins)) | {
    "__annotations__",
    "__builtins__",
    "__cached__",
    "__class__",
    "__debug__",
    "__doc__",
    "__file__",
    "__loader__",
    "__module__",
    "__name__",
    "__package__",
    "__path__",
    "__qualname__",
    "__spec__",
}


class NameUse(msgspec.Struct, frozen=True, kw_only=True):
    """A use of a name: the first one in its scope."""

    name: str
    line: int


def undefined_names(text: str, tree: ast.Module) -> tuple[NameUse, ...]:
    """Return the uses of global names that the text neither defines nor imports.

    A star import may define anything, so a text with one has no undefined names.

    Args:
        text: what `tree` was parsed from; it compiles.
        tree: from `parse_python`.
    """
    if any(_is_star_import(node) for node in ast.walk(tree)):
        return ()
    top = _symbol_table(text, tree)
    tables = list(_tables(top))
    defined = _bound_globals(tables)
    lines = _lines_of_uses(tree)
    found: dict[tuple[str, int], NameUse] = {}
    for table in tables:
        for symbol in table.get_symbols():
            name = symbol.get_name()
            is_global = table is top or symbol.is_global()
            if not symbol.is_referenced() or not is_global or name in defined | _GIVEN:
                continue
            start = table.get_lineno()
            at = next((line for line in lines.get(name, ()) if line >= start), max(start, 1))
            found[name, at] = NameUse(name=name, line=at)
    return tuple(sorted(found.values(), key=lambda use: (use.line, use.name)))


def bound_names(text: str, tree: ast.Module) -> frozenset[str]:
    """Return the names that the text binds at module level, imports included."""
    return _bound_globals(list(_tables(_symbol_table(text, tree))))


def _symbol_table(text: str, tree: ast.Module) -> symtable.SymbolTable:
    with PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symtable.symtable(_without_dead_annotations(text, tree), "<source>", "exec")


def _bound_globals(tables: list[symtable.SymbolTable]) -> frozenset[str]:
    top, *inner = tables
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    for table in inner:
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(symbol.get_name())
    return frozenset(bound)


def _tables(top: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    waiting = [top]
    while waiting:
        table = waiting.pop(0)
        yield table
        waiting.extend(table.get_children())


def _lines_of_uses(tree: ast.Module) -> dict[str, list[int]]:
    dead = {id(inner) for node in _dead_annotations(tree) for inner in ast.walk(node)}
    lines: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        loaded = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Name) and loaded and id(node) not in dead:
            lines.setdefault(node.id, []).append(node.lineno)
    return {name: sorted(places) for name, places in lines.items()}


def _is_star_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _without_dead_annotations(text: str, tree: ast.Module) -> str:
    """Return the text with every annotation that Python never evaluates blanked, line by line."""
    normalised = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = [bytearray(line.encode()) for line in normalised.split("\n")]
    for node in _dead_annotations(tree):
        _blank(lines, node)
    return b"\n".join(lines).decode()


def _dead_annotations(tree: ast.Module) -> Iterator[ast.expr]:
    postponed = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, in_function = waiting.pop()
        if isinstance(node, ast.AnnAssign) and (postponed or in_function):
            yield node.annotation
        if isinstance(node, ast.arg) and postponed and node.annotation is not None:
            yield node.annotation
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if postponed and node.returns is not None:
                yield node.returns
            in_function = True
        elif isinstance(node, ast.ClassDef):
            in_function = False
        waiting.extend((child, in_function) for child in ast.iter_child_nodes(node))


def _blank(lines: list[bytearray], node: ast.expr) -> None:
    """Overwrite an expression by `()` or `0` of the same extent: no other position moves."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
    for number in range(first, last + 1):
        begin = start if number == first else 0
        stop = end if number == last else len(lines[number])
        lines[number][begin:stop] = b" " * (stop - begin)
    if first == last and end - start == 1:
        lines[first][start:end] = b"0"
    else:
        lines[first][start : start + 1] = b"("
        lines[last][end - 1 : end] = b")"
