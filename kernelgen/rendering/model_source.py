"""What a solution keeps of a problem's Python: all but the Model's forward.

The constructor stays as it is written, so that parameters have the names and the initial values of
the reference's, with whatever of the module it needs.
"""

import ast
import textwrap
from collections.abc import Mapping

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.python_signature import Function, find_class, find_function
from kernelgen.problem.record import Case, Device, Problem

COLUMNS = 100
_GIVEN = {
    "import torch",
    "import torch.nn as nn",
    "from torch import nn",
    "import torch.nn.functional as F",
    "from torch.nn import functional as F",
}
_NO_CONSTRUCTOR = "    def __init__(self) -> None:\n        super().__init__()"


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a problem's Python, as text.

    Attributes:
        preamble: statements before the class, "" if it needs none.
        constructor: the class's body without forward, indented; what follows it ends __init__.
        unchanged: parameters of the constructor that it gives no other value.
        get_inputs, get_init_inputs: these two functions.
        functional: whether any of it uses torch.nn.functional as F.
    """

    preamble: str
    constructor: str
    unchanged: frozenset[str]
    get_inputs: str
    get_init_inputs: str
    functional: bool


def model_source(problem: Problem, case: Case, device: Device) -> ModelSource:
    """Return what a solution keeps of a problem's Python.

    Raises:
        ProblemError: Model is no plain subclass of nn.Module.
    """
    text = problem.reference_source(case, device)
    tree = ast.parse(text)
    model = find_class(tree.body, "Model")
    functions = [find_function(tree.body, name) for name in ("get_inputs", "get_init_inputs")]
    if model is None or None in functions:
        raise ProblemError(problem.path, None, "model", "expected Model, get_inputs and the like")
    bases = [ast.unparse(base) for base in model.bases]
    if bases not in (["nn.Module"], ["torch.nn.Module"], ["Module"]):
        message = f"a Model is rendered that is an nn.Module itself, not ({', '.join(bases)})"
        raise ProblemError(problem.path, model.lineno, "model", message)
    kept = _kept(model)
    own = [node for node in functions if node is not None]
    others = [node for node in tree.body if node is not model and node not in own]
    needed = _needed([*kept, *own], others)
    constructor = "\n\n".join(_source(text, node, "    ") for node in kept)
    has_own = any(_is_constructor(node) for node in kept)
    parts = [constructor] if has_own else [constructor, _NO_CONSTRUCTOR]
    written = "\n\n".join(part for part in parts if part)
    return ModelSource(
        preamble="\n".join(_source(text, node, "") for node in needed),
        constructor=written.replace("super(Model, self)", "super()"),
        unchanged=_unchanged(kept),
        get_inputs=_source(text, own[0], ""),
        get_init_inputs=_source(text, own[1], ""),
        functional=any(
            isinstance(node, ast.Name) and node.id == "F"
            for used in (*kept, *own, *needed)
            for node in ast.walk(used)
        ),
    )


def forward_line(inputs: Mapping[str, str], returns: str) -> str:
    """Return the line or lines of `def forward(...):`, indented, with its parameters' types."""
    given = ", ".join(f"{name}: {kind}" for name, kind in inputs.items())
    line = f"    def forward(self, {given}) -> {returns}:"
    if len(line) <= COLUMNS:
        return line
    return f"    def forward(\n        self, {given}\n    ) -> {returns}:"


def _kept(model: ast.ClassDef) -> list[ast.stmt]:
    """Return what the class's constructor needs of its body: methods that it calls, then itself."""
    methods = {node.name: node for node in model.body if isinstance(node, Function)}
    wanted, waiting = set[str](), ["__init__"]
    while waiting:
        name = waiting.pop()
        if name in methods and name not in wanted:
            wanted.add(name)
            waiting += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
    wanted.discard("forward")
    kept = [
        node
        for node in model.body
        if (isinstance(node, Function) and node.name in wanted)
        or isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    return sorted(kept, key=_is_constructor)


def _unchanged(kept: list[ast.stmt]) -> frozenset[str]:
    for node in kept:
        if isinstance(node, Function) and _is_constructor(node):
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            assigned = {n.id for n in stored if isinstance(n.ctx, ast.Store)}
            return frozenset(a.arg for a in node.args.args) - assigned
    return frozenset()


def _needed(users: list[ast.stmt], others: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module that others need, in their order."""
    found: set[int] = set()
    waiting = list(users)
    while waiting:
        names = {n.id for n in ast.walk(waiting.pop()) if isinstance(n, ast.Name)}
        for number, node in enumerate(others):
            if number not in found and not names.isdisjoint(_bound(node)):
                found.add(number)
                waiting.append(node)
    return [n for i, n in enumerate(others) if i in found and ast.unparse(n) not in _GIVEN]


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case _:
            stored = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            return {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def _is_constructor(node: ast.stmt) -> bool:
    return isinstance(node, Function) and node.name == "__init__"


def _source(text: str, node: ast.stmt, indent: str) -> str:
    decorated = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorated)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    return textwrap.indent(textwrap.dedent("\n".join(lines)), indent)
