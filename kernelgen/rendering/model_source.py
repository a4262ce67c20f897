"""Parts of a problem's Python that a solution keeps: all but the Model's forward.

The constructor stays as it is written, so that parameters have the names and the initial values of
the reference's, with whatever of the module it needs. Where these are not enough, or mean something
else outside of their class, all of the module stays, and ModelNew inherits from its Model.
"""

import ast
import contextlib
import re
import textwrap
from collections.abc import Mapping

import msgspec

from kernelgen.problem.python_signature import Function, find_class
from kernelgen.problem.python_text import GIVEN, USUAL_IMPORTS, bound_names, name_uses, needed_by
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.solution.source import is_main_block

COLUMNS = 100
_NO_CONSTRUCTOR = "    def __init__(self) -> None:\n        super().__init__()"
_INHERITED = """
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
""".strip("\n")
_INPUTS = ("get_inputs", "get_init_inputs")
_OF_FILES = re.compile(
    r"\b(?:(?:CPP|CUDA)_(?:FLAGS|SOURCE)|HOPPER_FLAGS|ModelNew"
    r"|ctypes|functools|hashlib|inspect|load_inline)\b"
)
# In a class that is inherited, it would find the class itself.
_OWN_SUPER = re.compile(r"\bsuper\s*\(\s*(?:self\.__class__|type\(self\))\s*,\s*self\s*\)")


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a problem's Python, as text, or all of it.

    Attributes:
        module: all of it; "" where the other parts are enough.
        preamble: statements before the class, "" if it needs none.
        constructor: ModelNew's body without forward, indented; what follows it ends __init__.
        unchanged: parameters of the constructor that it gives no other value.
        get_inputs, get_init_inputs: these two functions.
        functional: whether any of it uses torch.nn.functional as F.
    """

    module: str = ""
    preamble: str = ""
    constructor: str = ""
    unchanged: frozenset[str] = frozenset()
    get_inputs: str = ""
    get_init_inputs: str = ""
    functional: bool = False


def model_source(
    problem: Problem, case: Case, device: Device, returned: str = "None"
) -> ModelSource:
    """Return what a solution keeps of a problem's Python; `returned` is Python, as of forward."""
    text = whole_module(problem, case, device)
    module = _OWN_SUPER.sub("super()", text)
    return _parts(text, returned) or ModelSource(module=module, constructor=_INHERITED)


def whole_module(problem: Problem, case: Case, device: Device) -> str:
    """Return all of a problem's Python, with one kind of line end, and other names than a file's.

    Where it binds one of these in another way than an import, the name gets an underscore.
    """
    text = re.sub(r"\r\n?", "\n", problem.reference_source(case, device)).strip("\n")
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.alias))
    bound = bound_names(text).difference(*((node.name, node.asname) for node in imports))
    return _OF_FILES.sub(lambda found: found[0] + "_" * (found[0] in bound), text)


def forward_line(inputs: Mapping[str, str], returns: str) -> str:
    """Return the line or lines of `def forward(...):`, indented, with its parameters' types."""
    given = ", ".join(f"{name}: {kind}" for name, kind in inputs.items())
    line = f"    def forward(self, {given}) -> {returns}:"
    if len(line) <= COLUMNS:
        return line
    return f"    def forward(\n        self, {given}\n    ) -> {returns}:"


def _parts(text: str, returned: str) -> ModelSource | None:
    """Return parts of a module; None if they are not enough, or would mean something else."""
    body = ast.parse(text).body
    model = find_class(body, "Model")
    if model is None or not _is_plain_model(model) or not _only_binds(body):
        return None
    own = {n.name: n for n in body if isinstance(n, ast.FunctionDef) and n.name in _INPUTS}
    others = [node for node in body if node is not model and node not in own.values()]
    bound = set[str]().union(*map(_bound, others))
    if len(own) < len(_INPUTS) or not bound.isdisjoint(("Model", *_INPUTS)):
        return None
    kept = _kept(model)
    needed = _needed([*kept, *own.values(), *ast.parse(returned).body], others)
    constructor = "\n\n".join(_source(text, node, "    ") for node in kept)
    has_own = any(_is_constructor(node) for node in kept)
    parts = [constructor] if has_own else [constructor, _NO_CONSTRUCTOR]
    written = "\n\n".join(part for part in parts if part).replace("super(Model, self)", "super()")
    preamble = "\n".join(_source(text, node, "") for node in needed)
    functions = [_source(text, own[name], "") for name in _INPUTS]
    nodes = list(ast.walk(ast.parse("\n".join([preamble, f"class _:\n{written}", *functions]))))
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    binds = {n.arg for n in nodes if isinstance(n, ast.arg)} | bound_names(preamble)
    # The file's own functions have names that begin so.
    if "Model" in names or any(name.startswith("_") and name != "_" for name in binds):
        return None
    return ModelSource(
        preamble=preamble,
        constructor=written,
        unchanged=_unchanged(kept),
        get_inputs=functions[0],
        get_init_inputs=functions[1],
        functional="F" in names,
    )


def _only_binds(body: list[ast.stmt]) -> bool:
    """Whether each statement of a module binds names, or does nothing that the module sees."""
    imported = frozenset[str]().union(
        *(_bound(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom))
    )
    for node in body:
        match node:
            case ast.ImportFrom(module="__future__") | ast.ImportFrom(names=[ast.alias(name="*")]):
                return False
            case ast.FunctionDef() | ast.ClassDef() if node.decorator_list:
                return False
            case ast.Assign() | ast.AnnAssign() if not _stores_into(node):
                called = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
                owners = [n.value if isinstance(n, ast.Attribute) else n for n in called]
                if not {n.id for n in owners if isinstance(n, ast.Name)} <= imported | GIVEN:
                    return False
            case ast.Expr():
                # Any other may set what Model depends on, such as torch's default dtype.
                uses = {u.name for found in name_uses(ast.Module([node], [])) for u in found}
                if not uses <= {"print"}:
                    return False
            case _ if not isinstance(node, _BINDS) and not is_main_block(node):
                return False
    return True


_BINDS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def _stores_into(node: ast.stmt) -> bool:
    """Whether an assignment is one to a part of something."""
    parts = (n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Subscript))
    return any(isinstance(part.ctx, ast.Store) for part in parts)


def _is_plain_model(model: ast.ClassDef) -> bool:
    """Whether a class is an nn.Module of its own whose parts can stand in another class."""
    bases = [ast.unparse(base) for base in model.bases]
    plain = bases in (["nn.Module"], ["torch.nn.Module"], ["Module"])
    texts = [n for n in model.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    kinds = (Function, ast.Assign, ast.AnnAssign)
    for node in model.body:
        if _is_constructor(node):
            plain &= not any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        elif node not in texts:
            plain &= isinstance(node, kinds) and not getattr(node, "name", "").startswith("__")
    # Python gives names that begin with two underscores another class's name.
    names = [getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(model)]
    private = any(name.startswith("__") and not name.endswith("__") for name in names)
    return plain and not (model.decorator_list or model.keywords or private)


def _kept(model: ast.ClassDef) -> list[ast.stmt]:
    """Return a class's body without forward and the methods that it alone calls, __init__ last."""
    methods = {node.name: node for node in model.body if isinstance(node, Function)}

    def reached(*names: str) -> set[str]:
        wanted, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name in methods and name not in wanted:
                wanted.add(name)
                waiting += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
        return wanted

    wanted = reached("__init__", *(methods.keys() - reached("forward"))) - {"forward"}
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
    names = {n.id for user in users for n in ast.walk(user) if isinstance(n, ast.Name)}
    needed = [others[n] for n in needed_by(names, others)]
    return [node for node in needed if ast.unparse(node) not in USUAL_IMPORTS]


def _bound(node: ast.stmt) -> frozenset[str]:
    return bound_names(ast.unparse(node))


def _is_constructor(node: ast.stmt) -> bool:
    return isinstance(node, Function) and node.name == "__init__"


def _source(text: str, node: ast.stmt, indent: str) -> str:
    """Return a statement at an indentation: as it is written, where that says the same there."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = "\n".join(text.split("\n")[first - 1 : node.end_lineno])
    around = ast.ClassDef(name="_", bases=[], keywords=[], body=[node], decorator_list=[])
    plain = ast.unparse(around).partition("\n")[2].strip("\n") if indent else ast.unparse(node)
    before = "class _:\n" if indent else ""
    # A constructor is gone on with.
    after = f"\n{indent}    pass" if indent and isinstance(node, Function) else ""
    for found in (textwrap.indent(textwrap.dedent(lines), indent), lines):
        with contextlib.suppress(SyntaxError):
            trees = (ast.parse(f"{before}{written}{after}") for written in (found, plain))
            if len(set(map(ast.dump, trees))) == 1:
                return found
    return plain
