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
_CODE = ("lambda", "class ", "def ")


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a reference that a candidate is lent.

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
        changes: names that may have another value after it.
    """

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    changes: frozenset[str]


def lent_to(text: str, reference: str | None) -> Lent:
    """Return what a reference lends to a candidate's text: what that lacks, or may.

    Nothing without a reference, and to what is not Python.
    """
    try:
        tree = parse_python(text)
    except NotPythonError:
        return Lent()
    # Whatever happens in blocks. A function finds what is bound by the time of its call, the
    # module's own code only what is bound above it.
    always = set(_assigned_names(tree))
    always |= {node.name for node in tree.body if isinstance(node, _DEFINITION)}
    imported = [alias for node in tree.body if isinstance(node, _IMPORT) for alias in node.names]
    always |= {alias.asname or alias.name.partition(".")[0] for alias in imported}
    at_once, later = name_uses(tree)
    uses = at_once | {use for use in later if use.name not in always}
    wanted = frozenset(use.name for use in uses) | bound_names(text) - always
    source, names = _reduced(reference or "", wanted - GIVEN)
    # Names that a star import of its own binds cannot be told.
    told = () if any(map(_is_star_import, ast.walk(tree))) else sorted(uses)
    return Lent(source=source, uses=tuple(use for use in told if use.name in names))


def construction_source(reference: str) -> str:
    """Return the part of a reference that makes arguments and inputs, without Model."""
    return _reduced(reference, frozenset(IGNORED_FUNCTIONS))[0]


def _reduced(reference: str, wanted: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return the part of a module that binds names, and those that it has."""
    parts, models = _parts(reference)
    bound = frozenset[str]().union(*(part.binds for part in parts))
    unknown = wanted.union(*(part.uses for part in parts)) - bound - GIVEN
    harmless = [
        msgspec.structs.replace(part, changes=unknown) if _is_star_import(part.node) else part
        for part in parts
        if models.isdisjoint(part.binds | part.uses)
    ]
    needed, found = set(wanted), list[_Part]()
    while more := [p for p in harmless if p not in found and not needed.isdisjoint(p.changes)]:
        found += more
        needed.update(*(part.binds | part.uses for part in more))
    kept = [p.node for p in harmless if p in found or (found and "annotations" in p.binds)]
    source = ast.unparse(ast.Module(body=kept, type_ignores=[]))
    return source, wanted.intersection(*[{name for p in found for name in p.changes | p.binds}])


@functools.lru_cache(maxsize=64)
def _parts(reference: str) -> tuple[tuple[_Part, ...], frozenset[str]]:
    """Return a module's statements, and the names from which Model can be had, Model included."""
    parts = tuple(_part(n) for n in parse_python(reference).body if not is_main_block(n))
    imported = {name for part in parts if isinstance(part.node, _IMPORT) for name in part.binds}
    made = {name for p in parts if not _is_constant(p, imported) for name in p.changes} - imported
    models, more = set[str](), {"Model"}
    while more:
        models |= more
        makers = [p for p in parts if models & p.binds or models - {"Model"} & p.changes]
        more = made.intersection(*[{n for p in makers for n in _makings(p)}]) - models
    while more := {n for p in parts if models & p.uses for n in p.binds} - imported - models:
        models |= more
    return parts, frozenset(models)


def _part(node: ast.stmt) -> _Part:
    at_once, later = name_uses(ast.Module(body=[node], type_ignores=[]))
    uses = frozenset(use.name for use in at_once | later)
    inside = () if isinstance(node, _DEFINITION) else ast.walk(node)
    stores = [n for n in inside if isinstance(getattr(n, "ctx", None), ast.Store)]
    into = {n.id for store in stores for n in ast.walk(store) if isinstance(n, ast.Name)}
    binds = bound_names(ast.unparse(node)) | into
    does_no_more = isinstance(node, _IMPORT | _DEFINITION | _ASSIGNMENT)
    return _Part(node=node, binds=binds, uses=uses, changes=binds if does_no_more else binds | uses)


def _makings(part: _Part) -> AbstractSet[str]:
    """Return the names of what a Model is made of; what its methods call are only its helpers."""
    node = part.node
    if not isinstance(node, ast.ClassDef):
        return part.uses
    values = [n.value for n in node.body if isinstance(n, _ASSIGNMENT) and n.value]
    made = [*node.bases, *node.decorator_list, *(word.value for word in node.keywords), *values]
    return {n.id for one in made for n in ast.walk(one) if isinstance(n, ast.Name)}


def _is_constant(part: _Part, imported: AbstractSet[str]) -> bool:
    """Whether a statement assigns what needs none of the module's code, and can be no code."""
    text = ast.unparse(part.node) if isinstance(part.node, _ASSIGNMENT) else _CODE[0]
    return part.uses <= imported | GIVEN and not any(word in text for word in _CODE)


def _is_star_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _assigned_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of assignments at module level, several of one included."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value:
            targets = [node.target]
        names = (n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        yield from (name.id for name in names if isinstance(name.ctx, ast.Store))
