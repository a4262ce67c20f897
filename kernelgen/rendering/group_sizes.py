"""Whether nn.GroupNorm can part its channels into its groups, where the text says how many.

Nothing is run: a size is known if it is a whole number, a constant, or a constructor's parameter
that gets one of these. Any other expression is left to the reference.
"""

import ast

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.python_signature import Function, find_class, find_function, signature_of
from kernelgen.problem.record import ConstantValue, Problem
from kernelgen.rendering.reference_model import Layer


class _Size(msgspec.Struct, frozen=True, kw_only=True):
    """A number, and the constant that it comes from or ""."""

    value: int
    constant: str


def refuse_uneven_groups(
    problem: Problem,
    norm: Layer,
    constants: dict[str, ConstantValue],
    overridden: tuple[str, ...],
) -> None:
    """Refuse channels that are no multiple of the groups, if both are known.

    Raises:
        UserError: an overridden constant is to blame.
        ProblemError: the problem itself is.
    """
    given = _constructor_arguments(problem)
    groups = _size(norm.argument(0, "num_groups"), given, constants)
    channels = _size(norm.argument(1, "num_channels"), given, constants)
    if groups is None or channels is None:
        return
    if groups.value > 0 and channels.value % groups.value == 0:
        return
    message = (
        f"nn.GroupNorm cannot part {channels.value} channels into {groups.value} groups; "
        "the channels must be a multiple of the groups"
    )
    to_blame = {groups.constant, channels.constant}
    if names := [name for name in overridden if name in to_blame]:
        raise UserError(f"--set {', '.join(names)}: {message}")
    raise ProblemError(problem.path, None, "model", message)


def _size(
    source: str | None, given: dict[str, str | None], constants: dict[str, ConstantValue]
) -> _Size | None:
    if source in given:
        source = given[source]
    if source is None:
        return None
    if source.isdecimal():
        return _Size(value=int(source), constant="")
    value = constants.get(source)
    return _Size(value=value, constant=source) if type(value) is int else None


def _constructor_arguments(problem: Problem) -> dict[str, str | None]:
    """Return the source of what each name in the constructor is bound to; None is unknown."""
    model = find_class(ast.parse(problem.model).body, "Model")
    constructor = model and find_function(model.body, "__init__")
    assert constructor, "read_model refuses a Model without a constructor"
    init_inputs = find_function(ast.parse(problem.get_init_inputs).body, "get_init_inputs")
    values = _returned(init_inputs) if init_inputs else None
    nodes = tuple(ast.walk(constructor))
    given: dict[str, str | None] = {n.arg: None for n in nodes if isinstance(n, ast.arg)}
    if values is not None:
        signature = signature_of(constructor, method=True)
        given |= zip(signature.positional, signature.defaults, strict=True)
        given |= zip(signature.positional, values, strict=False)
    names = (n for n in nodes if isinstance(n, ast.Name))
    return given | {n.id: None for n in names if isinstance(n.ctx, ast.Store)}


def _returned(function: Function) -> list[str] | None:
    """Return the source of the items of the one list that a function returns, if it does so."""
    match [node for node in function.body if not isinstance(node, ast.Expr)]:
        case [ast.Return(value=ast.List(elts=items) | ast.Tuple(elts=items))]:
            if any(isinstance(item, ast.Starred) for item in items):
                return None
            return [ast.unparse(item) for item in items]
    return None
