"""Whether a solution's ModelNew can be constructed and called as the reference's Model is."""

import ast
import difflib
from collections import deque

import msgspec

from kernelgen.problem.python_signature import Function, Signature, find_function, signature_of
from kernelgen.solution.finding import Finding, error, warning
from kernelgen.solution.reference_facts import ReferenceFacts
from kernelgen.solution.source import Source

_NAME = "ModelNew"
# Most classes that are looked at for a misspelt name: each takes a while.
_LIKELY = 100
_MODULE = ("Module", "nn.Module", "torch.nn.Module", "torch.nn.modules.module.Module")
# Bases with which a class is certainly no module; any other unknown base may be one.
_NOT_MODULES = ("object", "abc.ABC", "torch.autograd.Function", "typing.Protocol", "Exception")
# These return a function that takes what the decorated one takes.
_TRANSPARENT = ("inference_mode", "no_grad", "enable_grad", "wraps", "override", "custom_fwd")


class _Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """ModelNew and its bases within the file, in the order in which methods are looked up.

    Attributes:
        classes: ModelNew first.
        is_module: it is an nn.Module, or may be one.
        closed: only nn.Module lies beyond the file, no decorator or metaclass changes it, and
            nothing gives it a method from outside.
    """

    classes: tuple[ast.ClassDef, ...]
    is_module: bool
    closed: bool


def model_findings(source: Source, bound: frozenset[str], facts: ReferenceFacts) -> list[Finding]:
    """Check ModelNew's presence, base class, constructor and forward."""
    if _NAME not in bound:
        return [] if source.binds_unseen else [_missing(source)]
    classes = _module_level_classes(source.tree.body)
    alias = _alias_of_model(source.tree.body)
    model = classes.get(_NAME) or (classes.get(alias) if alias else None)
    if model is None:
        line = next((getattr(n, "lineno", None) for n in source.nodes if _stores_name(n)), None)
        return [warning(line, f"{_NAME} is not a plain class, so its signatures are not checked")]
    lineage = _lineage(model, classes, source)
    if not lineage.is_module:
        return [error(model.lineno, f"{_NAME} is no nn.Module; write `class {_NAME}(nn.Module)`")]
    return [found for name in facts.calls for found in _method_findings(name, lineage, facts)]


def _missing(source: Source) -> Finding:
    defined = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
    inner = next((node for node in defined if node.name == _NAME), None)
    if inner is not None:
        message = f"{_NAME} is defined inside another block; move it to the top level of the file"
        return error(inner.lineno, message)
    close = difflib.get_close_matches(_NAME, [node.name for node in defined[:_LIKELY]], n=1)
    if close:
        node = next(node for node in defined if node.name == close[0])
        return error(node.lineno, f"no class {_NAME}, only {close[0]}; rename it to {_NAME}")
    return error(
        None, f"no class {_NAME} at the top level of the file; define `class {_NAME}(nn.Module)`"
    )


def _module_level_classes(body: list[ast.stmt]) -> dict[str, ast.ClassDef]:
    """Return the classes that module-level code defines, also under `if`, `try` and `with`."""
    classes: dict[str, ast.ClassDef] = {}
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))
    return classes


def _alias_of_model(body: list[ast.stmt]) -> str | None:
    for node in reversed(body):
        if isinstance(node, ast.Assign) and any(_stores_name(target) for target in node.targets):
            return node.value.id if isinstance(node.value, ast.Name) else None
    return None


def _stores_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == _NAME and isinstance(node.ctx, ast.Store)


def _lineage(model: ast.ClassDef, classes: dict[str, ast.ClassDef], source: Source) -> _Lineage:
    chain: dict[ast.ClassDef, None] = {}
    waiting, paths, decorated = deque([model]), list[str](), False
    while waiting:
        node = waiting.popleft()
        if node in chain:
            continue
        chain[node] = None
        decorated |= bool(node.decorator_list or node.keywords)
        for base in node.bases:
            local = classes.get(base.id) if isinstance(base, ast.Name) else None
            if local is not None:
                waiting.append(local)
            else:
                paths.append(source.path_of(base) or "?")
    unknown = [path for path in paths if path not in (*_MODULE, *_NOT_MODULES)]
    attributes = (n for n in source.nodes if isinstance(n, ast.Attribute))
    outside = source.binds_unseen or any(
        n.attr in ("__init__", "forward") and isinstance(n.ctx, ast.Store) for n in attributes
    )
    return _Lineage(
        classes=tuple(chain),
        is_module=decorated or bool(unknown) or any(path in _MODULE for path in paths),
        closed=not (unknown or decorated or outside),
    )


def _find_method(name: str, lineage: _Lineage) -> Function | ast.ClassDef | None:
    """Return a method's `def`, else the class that makes it in another way, if one does."""
    for ancestor in lineage.classes:
        if (function := find_function(ancestor.body, name)) is not None:
            return function
        others = ("__new__",) if name == "__init__" else ("__call__", "__getattr__")
        for node in ast.walk(ancestor):
            assigned = isinstance(getattr(node, "ctx", None), ast.Store)
            stored = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if (assigned and stored == name) or getattr(node, "name", None) in (name, *others):
                return ancestor
    return None


def _bound_signature(function: Function) -> tuple[Signature, bool]:
    """Return a method's signature as its caller sees it, and whether no decorator may change it."""
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    endings = [name.split(".")[-1] for name in names]
    signature = signature_of(function, method="staticmethod" not in endings)
    plain = (*_TRANSPARENT, "staticmethod", "classmethod")
    return signature, all(ending in plain for ending in endings)


def _method_findings(name: str, lineage: _Lineage, facts: ReferenceFacts) -> list[Finding]:
    theirs, count = facts.calls[name]
    wanted = theirs.required if count is None else count
    found = _find_method(name, lineage)
    line = lineage.classes[0].lineno
    if found is None:
        if not lineage.closed or (name == "__init__" and wanted == 0):
            return []
        message = f"{_NAME} has no {name}; the reference has {name}{theirs.text}: define it so"
        return [error(line, message)]
    if not isinstance(found, Function):
        return []
    ours, certain = _bound_signature(found)
    shown = f"{_NAME}.{name}{ours.text}, the reference's Model.{name}{theirs.text}"
    if not ours.accepts(wanted):
        message = (
            f"{shown}: it is called with {wanted} positional argument{'s' * (wanted != 1)}, "
            "which the first does not accept; give it the reference's parameters"
        )
        return [(error if certain else warning)(found.lineno, message)]
    return []
