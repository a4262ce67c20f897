"""The parts of a reference that a candidate's processes may have: never Model, nor a way to it.

KernelBench runs a candidate in the namespace of its problem's file. What runs the candidate gets
text that has been reduced here: the statements that bind what is asked for, and what these need.
"""

import ast
import functools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec

from kernelgen.problem.python_text import (
    GIVEN,
    NameUse,
    NotPythonError,
    bound_names,
    name_uses,
    parse_python,
)
from kernelgen.solution.source import IGNORED_FUNCTIONS, is_main_block

_IMPORT = ast.Import | ast.ImportFrom
_DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_ASSIGNMENT = ast.Assign | ast.AnnAssign


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference lends to a candidate.

    Attributes:
        source: Python to be run in the candidate's namespace before its own; "" for nothing.
        uses: where the candidate uses names of it that it does not define itself.
    """

    source: str = ""
    uses: tuple[NameUse, ...] = ()


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A statement at the top level of a reference.

    Attributes:
        binds: names, those of what it stores into included.
        uses: global names, all scopes included.
        changes: names whose values it is needed for.
    """

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]

    @property
    def changes(self) -> frozenset[str]:
        kept = isinstance(self.node, _IMPORT | _DEFINITION | _ASSIGNMENT)
        return self.binds if kept else self.binds | self.uses


def lent_to(text: str, reference: str | None) -> Lent:
    """Return what a reference lends to a candidate's text: what that lacks, or may.

    Nothing without a reference, and to what is not Python.
    """
    try:
        tree = parse_python(text)
    except NotPythonError:
        return Lent()
    always = frozenset(_always_bound(tree))
    at_once, later = name_uses(tree)
    # A function finds what is bound by the time of its call, the module's own code only what is
    # bound above it.
    uses = at_once | {use for use in later if use.name not in always}
    wanted = {use.name for use in uses} | bound_names(text) - always
    source, names = _reduced(reference or "", wanted - GIVEN)
    # What a star import of its own binds cannot be told.
    told = () if any(map(_is_star_import, ast.walk(tree))) else sorted(uses)
    return Lent(source=source, uses=tuple(use for use in told if use.name in names))


def construction_source(reference: str) -> str:
    """Return the part of a reference that makes arguments and inputs, without Model."""
    return _reduced(reference, frozenset(IGNORED_FUNCTIONS))[0]


def _reduced(reference: str, wanted: AbstractSet[str]) -> tuple[str, frozenset[str]]:
    """Return the part of a module that binds names, and those that it has."""
    parts, models = _parts(reference)
    known = frozenset[str]().union(*(part.binds for part in parts))
    asked = frozenset(wanted).union(*(part.uses for part in parts)) - known - GIVEN
    stars = [
        msgspec.structs.replace(part, binds=asked) if _is_star_import(part.node) else part
        for part in parts
    ]
    harmless = [part for part in stars if models.isdisjoint(part.binds | part.uses)]
    needed, found = set(wanted), list[_Part]()
    while more := [p for p in harmless if p not in found and not needed.isdisjoint(p.changes)]:
        found += more
        needed.update(*(part.binds | part.uses for part in more))
    kept = [p.node for p in harmless if found and (p in found or _is_future_import(p.node))]
    names = frozenset[str]().union(*(part.binds for part in found)) & wanted
    return ast.unparse(ast.Module(body=kept, type_ignores=[])), names


@functools.lru_cache(maxsize=64)
def _parts(reference: str) -> tuple[tuple[_Part, ...], frozenset[str]]:
    """Return a module's statements, and the names from which Model can be had, Model included."""
    parts = tuple(_part(n) for n in parse_python(reference).body if not is_main_block(n))
    imported = {name for part in parts if isinstance(part.node, _IMPORT) for name in part.binds}
    plain = imported.union(*(part.binds for part in parts if _is_constant(part, imported)))
    models, waiting = set[str](), {"Model"}
    while waiting:
        models |= waiting
        made_of = [_makings(part) for part in parts if not models.isdisjoint(part.binds)]
        waiting = set[str]().union(*made_of) - models - plain
    while more := {
        name for part in parts if models & part.uses for name in part.binds - imported - models
    }:
        models |= more
    return parts, frozenset(models)


def _part(node: ast.stmt) -> _Part:
    at_once, later = name_uses(ast.Module(body=[node], type_ignores=[]))
    stored: list[ast.expr] = []
    if isinstance(node, _ASSIGNMENT):
        stored = node.targets if isinstance(node, ast.Assign) else [node.target]
    into = {n.id for target in stored for n in ast.walk(target) if isinstance(n, ast.Name)}
    return _Part(
        node=node,
        binds=bound_names(ast.unparse(node)) | into,
        uses=frozenset(use.name for use in at_once | later),
    )


def _makings(part: _Part) -> AbstractSet[str]:
    """Return the names of what a Model is made of; what its methods call are only its helpers."""
    node = part.node
    if not isinstance(node, ast.ClassDef):
        return part.uses
    values = [n.value for n in node.body if isinstance(n, _ASSIGNMENT) and n.value]
    made = [*node.bases, *node.decorator_list, *(word.value for word in node.keywords), *values]
    return {n.id for one in made for n in ast.walk(one) if isinstance(n, ast.Name)}


def _is_constant(part: _Part, imported: AbstractSet[str]) -> bool:
    """Whether a statement assigns what runs nothing, and is no text that could be code."""
    return (
        isinstance(part.node, _ASSIGNMENT)
        and part.uses <= imported | GIVEN
        and not any(
            isinstance(n, ast.Call | ast.Lambda)
            or (isinstance(n, ast.Constant) and len(str(n.value).split()) > 1)
            for n in ast.walk(part.node)
        )
    )


def _always_bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds outside any block, whatever happens in it."""
    for node in tree.body:
        if isinstance(node, _DEFINITION):
            yield node.name
        elif isinstance(node, _IMPORT):
            yield from (a.asname or a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, _ASSIGNMENT) and node.value:
            names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            yield from (n.id for n in names if isinstance(n.ctx, ast.Store))


def _is_star_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _is_future_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
