"""What a template needs to know of the reference's class: its constructor, inputs and layers."""

import ast
import textwrap

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.python_signature import Function, find_class, find_function, signature_of
from kernelgen.problem.record import Problem

_COLUMNS = 100
# What the templates' own forward calls its locals and modules, and what it needs of Python's own;
# an input may not have these names.
_RESERVED = frozenset(
    """
    F ValueError affine bias channels ctypes functools groups h hashlib inner len length map nn
    norm out segments shape sizes str tensors torch tuple weight
    """.split()  # noqa: SIM905 - a list of words reads best as words
)


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer that the constructor makes.

    Attributes:
        attribute: `gn` for `self.gn = nn.GroupNorm(...)`.
        kind: `GroupNorm`.
    """

    attribute: str
    kind: str
    positional: tuple[str, ...]
    keywords: dict[str, str]

    def argument(self, position: int, keyword: str) -> str | None:
        """Return the source of an argument; None if it is not given, or stands behind a `*`."""
        before = self.positional[: position + 1]
        if any(source.startswith("*") for source in before):
            return None
        return before[position] if len(before) > position else self.keywords.get(keyword)


class ReferenceModel(msgspec.Struct, frozen=True, kw_only=True):
    """The reference's class as text.

    Attributes:
        constructor: source of `__init__`, indented for a class body.
        forward: the line or lines of `def forward(...):`, indented for a class body.
        inputs: names of forward's parameters, without self.
    """

    constructor: str
    forward: str
    inputs: tuple[str, ...]
    layers: tuple[Layer, ...]

    def layer(self, *kinds: str) -> Layer | None:
        """Return the only layer of one of these kinds, or None if there is none or several."""
        found = [layer for layer in self.layers if layer.kind in kinds]
        return found[0] if len(found) == 1 else None


def read_model(problem: Problem) -> ReferenceModel:
    """Return what the templates need of a problem's Model.

    Raises:
        ProblemError: Model has no constructor or forward of its own, or is not alone in its block.
    """
    tree = ast.parse(problem.model)
    model = find_class(tree.body, "Model")
    if model is None or len(tree.body) != 1:
        raise _error(problem, "a template needs a block with the class Model and nothing else")
    constructor = find_function(model.body, "__init__")
    forward = find_function(model.body, "forward")
    if constructor is None or forward is None:
        raise _error(problem, "a template needs a Model with an __init__ and a forward of its own")
    signature = signature_of(forward, method=True)
    if signature.variadic or signature.required_keywords or forward.args.kwonlyargs:
        raise _error(problem, "a template needs a forward with plain parameters only")
    for name in signature.positional:
        if name in _RESERVED or name.startswith("_"):
            message = f"the input {name!r} is called like a name that the template uses; rename it"
            raise _error(problem, message)
    return ReferenceModel(
        # The solution's class has another name.
        constructor=_method_source(problem.model, constructor).replace(
            "super(Model, self)", "super()"
        ),
        forward=_definition(forward),
        inputs=signature.positional,
        layers=tuple(_layers(constructor)),
    )


def _error(problem: Problem, message: str) -> ProblemError:
    return ProblemError(problem.path, None, "model", message)


def _method_source(text: str, function: Function) -> str:
    lines = text.splitlines()[function.lineno - 1 : function.end_lineno]
    return textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")


def _definition(function: Function) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    parameters = ast.unparse(function.args)
    line = f"    def {function.name}({parameters}){returns}:"
    if len(line) <= _COLUMNS:
        return line
    return f"    def {function.name}(\n        {parameters}\n    ){returns}:"


def _layers(constructor: Function) -> list[Layer]:
    layers = []
    for node in ast.walk(constructor):
        match node:
            case (
                ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)],
                    value=ast.Call(func=ast.Attribute(attr=kind), args=args, keywords=keywords),
                )
                | ast.AnnAssign(
                    target=ast.Attribute(value=ast.Name(id="self"), attr=attribute),
                    value=ast.Call(func=ast.Attribute(attr=kind), args=args, keywords=keywords),
                )
            ):
                given = {k.arg: ast.unparse(k.value) for k in keywords if k.arg is not None}
                positional = tuple(ast.unparse(argument) for argument in args)
                layers.append(
                    Layer(attribute=attribute, kind=kind, positional=positional, keywords=given)
                )
    return layers
