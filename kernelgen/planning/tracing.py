"""A problem's source to its graph: runs the problem's code, on tensors without memory.

Not imported where the code is not trusted; `capture.py` runs it in a process of its own.
"""

import inspect
import operator
import re
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
)
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from kernelgen.planning.graph import (
    Argument,
    Graph,
    GraphInput,
    Item,
    Named,
    Node,
    Number,
    Reference,
    Scalar,
    TensorType,
)


SOURCE_NAME = "<problem>"
# They copy a constant, or hide it from autograd: a number stays that number.
_KEEPING = frozenset(("alias", "clone", "detach", "detach_", "lift_fresh_copy"))
# Facts about the trace itself, not a part of what is computed.
_ASSERTIONS = frozenset(("_assert_scalar", "_assert_tensor_metadata"))
_BY_VALUES = ("DataDependent", "GuardOnDataDependent", "DynamicOutputShape")


class NotPlannedError(Exception):
    """A forward does what a graph cannot say; the message is for the user."""


def trace(source: str, *, eval_mode: bool = False) -> Graph:
    """Return the graph of a problem's forward.

    Args:
        source: Python that defines Model, get_inputs and get_init_inputs.
        eval_mode: trace it under `eval()`; else in training mode, as a new Model is.

    Raises:
        NotPlannedError: forward has no graph, or one that changes what it was given.
        Exception: whatever the problem's code raises.
    """
    space: dict[str, Any] = {"__name__": "reference"}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        exec(compile(source, SOURCE_NAME, "exec"), space)  # noqa: S102 - contained by the caller
        try:
            given = space["get_inputs"]()
            model = space["Model"](*space["get_init_inputs"]())
        except DataDependentOutputException as error:
            raise NotPlannedError(
                f"its constructor reads values of tensors ({error.func})"
            ) from error
        if eval_mode:
            model.eval()
        attributes = _attributes_as_buffers(model)
        # A float stays an argument only as a tensor; it promotes no dtype.
        inputs = [torch.tensor(x, dtype=torch.float64) if type(x) is float else x for x in given]
        try:
            program = torch.export.export(model, tuple(inputs), strict=False)
        except Exception as error:
            raise _not_exported(error) from error
    names = tuple(inspect.signature(model.forward).parameters)[: len(given)]
    return _graph(program, names, given, attributes)


def _attributes_as_buffers(model: torch.nn.Module) -> frozenset[str]:
    """Register the tensors that modules hold as plain attributes; return their paths.

    A buffer may be replaced by forward and read again by the next call, as such an attribute is. A
    number that is written down in the constructor stays a constant.
    """
    paths = set()
    for prefix, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and _number_of(value) is None:
                delattr(module, name)
                module.register_buffer(name, value, persistent=False)
                paths.add(f"{prefix}.{name}" if prefix else name)
    return frozenset(paths)


def _number_of(value: Any) -> bool | int | float | None:
    """Return what a 0-dimensional tensor holds, if its value is known; else None."""
    if isinstance(value, FakeTensor):
        value = value.constant
    known = isinstance(value, torch.Tensor) and not value.shape
    return value.detach().item() if known else None


def _not_exported(error: Exception) -> NotPlannedError:
    if type(error).__name__.startswith(_BY_VALUES):
        found = re.search(r"aten[.:]+\w+", str(error))
        where = found[0].replace("::", ".") if found else "aten._local_scalar_dense"
        return _by_values(where)
    words = str(error).strip().splitlines() or [type(error).__name__]
    return NotPlannedError(f"torch.export finds no graph: {words[0]}")


def _by_values(where: str) -> NotPlannedError:
    return NotPlannedError(f"forward depends on values of its inputs ({where})")


def _graph(
    program: ExportedProgram,
    names: tuple[str, ...],
    given: list[Any],
    attributes: frozenset[str],
) -> Graph:
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    users = [s.arg.name for s in specs.values() if s.kind is InputKind.USER_INPUT]
    by_user = dict(zip(users, zip(names, given, strict=True), strict=True))
    renamed: dict[str, Reference | Number] = {}
    inputs: list[GraphInput] = []
    nodes: list[Node] = []
    fixed: dict[str, Scalar] = {}
    owners: dict[str, GraphInput] = {}
    updates: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = specs[node.name]
            name = node.name
            if spec.kind is InputKind.USER_INPUT:
                name, value = by_user[node.name]
                if not isinstance(value, torch.Tensor | float):
                    fixed[name] = value
                    continue
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                renamed[node.name] = _constant(program.constants[str(spec.target)])
                continue
            renamed[node.name] = Reference(name)
            found = _input(node, spec, name, by_user)
            if found.path in attributes:
                found = msgspec.structs.replace(found, kind="attribute")
            inputs.append(found)
            owners[found.name] = found
        elif node.op == "call_function":
            base = _base(node)
            if base in _ASSERTIONS:
                continue
            if (number := _kept_number(node, base, renamed)) is not None:
                renamed[node.name] = number
                continue
            made = _node(node, renamed)
            if base.endswith("_") and not base.endswith("__"):
                # The name goes on as that of the new value.
                target = made.argument(next(iter(made.arguments)))
                made = _functional(made)
                root = node.args[0].name
                _forbid_views(nodes, target)
                renamed[root] = Reference(made.name)
                owner = owners.get(target)
                if owner is not None and owner.kind in {"buffer", "attribute"}:
                    updates[owner.path] = made.name
                elif owner is not None:
                    raise NotPlannedError(f"forward changes {owner.path or owner.name} in place")
                if owner is not None:
                    owners[made.name] = owner
            renamed[node.name] = Reference(made.name)
            nodes.append(made)
        elif node.op == "output":
            outputs = tuple(_output_name(x, renamed) for x in node.args[0])
        else:
            raise NotPlannedError(f"the graph has a node of kind {node.op}")
    spec = program.call_spec.out_spec
    return Graph(
        arguments=names,
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=outputs,
        single=spec is None or spec.is_leaf(),
        updates=updates,
        fixed=fixed,
    )


def _functional(node: Node) -> Node:
    """Return the same call of the operator that changes nothing in place."""

    base, overload = node.aten.split(".")
    return msgspec.structs.replace(node, aten=f"{base[:-1]}.{overload}")


_VIEWS = frozenset(
    """alias chunk detach diagonal expand flatten movedim narrow permute reshape select slice split
    squeeze t transpose unbind unsqueeze view view_as""".split()  # noqa: SIM905
)


def _forbid_views(nodes: list[Node], target: str) -> None:
    """Refuse a change in place of what shares its memory with another value."""
    for node in nodes:
        is_view = node.aten.split(".")[0] in _VIEWS
        involved = node.name == target or target in (
            a.name for a in node.arguments.values() if isinstance(a, Reference)
        )
        if is_view and involved:
            raise NotPlannedError(f"forward changes a view in place ({node.aten} of {target})")


def _constant(value: torch.Tensor) -> Number:
    """Return what a constant of 0 dimensions is.

    Raises:
        NotPlannedError: it has some.
    """
    number = _number_of(value)
    if number is None:
        shape = tuple(value.shape)
        raise NotPlannedError(
            f"forward makes a tensor of shape {shape} from numbers; make it in __init__, "
            "with register_buffer"
        )
    return number


def _base(node: torch.fx.Node) -> str:
    """Return `add` for the operator add.Tensor."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _kept_number(
    node: torch.fx.Node, base: str, renamed: dict[str, Reference | Number]
) -> Number | None:
    """Return the number that a call makes of numbers alone; None if a tensor is among them."""
    read = [renamed[one.name] for one in node.all_input_nodes if one.name in renamed]
    numbers = [one for one in read if not isinstance(one, Reference)]
    if not numbers or len(numbers) < len(read):
        return None
    if base in _KEEPING:
        return numbers[0]
    number = _number_of(node.meta["val"])
    if number is None:
        raise NotPlannedError(f"forward computes with constants alone (aten.{base})")
    return number


def _output_name(output: Any, renamed: dict[str, Reference | Number]) -> str:
    if not isinstance(output, torch.fx.Node):
        raise NotPlannedError(f"forward returns {output!r} beside tensors")
    found = renamed[output.name]
    if not isinstance(found, Reference):
        raise NotPlannedError(f"forward returns the constant {found!r}")
    return found.name


def _input(
    node: torch.fx.Node, spec: InputSpec, name: str, by_user: dict[str, tuple[str, Any]]
) -> GraphInput:
    found = _type(node.meta["val"])
    assert found is not None
    match spec.kind:
        case InputKind.USER_INPUT:
            scalar = isinstance(by_user[node.name][1], float)
            return GraphInput(name=name, kind="scalar" if scalar else "input", type=found)
        case InputKind.PARAMETER | InputKind.BUFFER:
            is_parameter = spec.kind is InputKind.PARAMETER
            return GraphInput(
                name=name,
                kind="parameter" if is_parameter else "buffer",
                type=found,
                path=spec.target or "",
            )
        case _:
            raise NotPlannedError(f"the graph has an input of kind {spec.kind.name.lower()}")


def _node(node: torch.fx.Node, renamed: dict[str, Reference | Number]) -> Node:
    module = ""
    if stack := node.meta.get("nn_module_stack"):
        module = list(stack.values())[-1][0].removeprefix("L['self'].").removeprefix("L['self']")
    if node.target is operator.getitem:
        value, index = node.args
        arguments: dict[str, Argument] = {
            "value": _argument(value, renamed),
            "index": _argument(index, renamed),
        }
        types = (_type(node.meta["val"]),)
        return Node(name=node.name, aten="getitem", arguments=arguments, given=2, results=types)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise NotPlannedError(f"the graph calls {target}, which is no operator of torch")
    namespace = target.namespace
    if namespace != "aten":
        raise NotPlannedError(f"the graph calls {namespace}::{target.__name__}")
    parameters = target._schema.arguments
    values = {
        p.name: _argument(p.default_value if p.has_default_value() else None, renamed)
        for p in parameters
    }
    given = len(node.args)
    for parameter, value in zip(parameters, node.args, strict=False):
        values[parameter.name] = _argument(value, renamed)
    for name, value in node.kwargs.items():
        values[name] = _argument(value, renamed)
        given = max(given, list(values).index(name) + 1)
    result = node.meta["val"]
    results = result if isinstance(result, list | tuple) else (result,)
    if any(isinstance(one, torch.SymInt | torch.SymFloat | torch.SymBool) for one in results):
        raise _by_values(f"aten.{_base(node)}")
    return Node(
        name=node.name,
        aten=target.__name__,
        arguments=values,
        given=given,
        results=tuple(_type(value) for value in results),
        module=module,
    )


def _argument(value: Any, renamed: dict[str, Reference | Number]) -> Argument:
    match value:
        case list() | tuple():
            return tuple(_item(item, renamed) for item in value)
        case _:
            return _item(value, renamed)


def _item(value: Any, renamed: dict[str, Reference | Number]) -> Item:
    match value:
        case torch.fx.Node():
            return renamed[value.name]
        case torch.dtype() | torch.memory_format() | torch.layout():
            return Named(str(value).removeprefix("torch."))
        case torch.device():
            return Named("device")
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise NotPlannedError(f"the graph has an argument of kind {type(value).__name__}")


def _type(value: Any) -> TensorType | None:
    if not isinstance(value, torch.Tensor):
        return None
    if not all(isinstance(size, int) for size in value.shape):
        raise NotPlannedError("forward makes a tensor whose shape depends on values of its inputs")
    return TensorType(
        shape=tuple(map(int, value.shape)),
        strides=tuple(map(int, value.stride())),
        dtype=str(value.dtype).removeprefix("torch."),
    )
