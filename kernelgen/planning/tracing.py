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
    is_plain,
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
            made_with = space["get_init_inputs"]()
            model = space["Model"](*made_with)
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
    graph = _Reader(program, names, given, attributes).graph()
    parameters = list(inspect.signature(space["Model"]).parameters)
    plain = {n: v for n, v in zip(parameters, made_with, strict=False) if is_plain(v)}
    return msgspec.structs.replace(graph, made_with=plain)


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


class _Reader:
    """A program's nodes, read one after the other."""

    def __init__(
        self,
        program: ExportedProgram,
        names: tuple[str, ...],
        given: list[Any],
        attributes: frozenset[str],
    ) -> None:
        self._program, self._names, self._attributes = program, names, attributes
        self._specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        users = [s.arg.name for s in self._specs.values() if s.kind is InputKind.USER_INPUT]
        self._by_user = dict(zip(users, zip(names, given, strict=True), strict=True))
        self._known: dict[str, Reference | Number] = {}
        self._inputs: list[GraphInput] = []
        self._nodes: list[Node] = []
        self._fixed: dict[str, Scalar] = {}
        # Of a value that stands for an input, as it is by now: which.
        self._owners: dict[str, GraphInput] = {}
        self._updates: dict[str, str] = {}
        self._outputs: tuple[str, ...] = ()

    def graph(self) -> Graph:
        """Read it all."""
        for node in self._program.graph.nodes:
            match node.op:
                case "placeholder":
                    self._placeholder(node)
                case "call_function":
                    self._call(node)
                case "output":
                    self._outputs = tuple(_output_name(x, self._known) for x in node.args[0])
                case _:
                    raise NotPlannedError(f"the graph has a node of kind {node.op}")
        spec = self._program.call_spec.out_spec
        return Graph(
            arguments=self._names,
            inputs=tuple(self._inputs),
            nodes=tuple(self._nodes),
            outputs=self._outputs,
            single=spec is None or spec.is_leaf(),
            updates=self._updates,
            fixed=self._fixed,
        )

    def _placeholder(self, node: torch.fx.Node) -> None:
        spec, name = self._specs[node.name], node.name
        if spec.kind is InputKind.USER_INPUT:
            name, value = self._by_user[node.name]
            if not isinstance(value, torch.Tensor | float):
                self._fixed[name] = value
                return
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            self._known[node.name] = _constant(self._program.constants[str(spec.target)])
            return
        found = _input(node, spec, name, self._by_user)
        if found.path in self._attributes:
            found = msgspec.structs.replace(found, kind="attribute")
        self._known[node.name] = Reference(name)
        self._inputs.append(found)
        self._owners[name] = found

    def _call(self, node: torch.fx.Node) -> None:
        base = _base(node)
        if base in _ASSERTIONS:
            return
        if (number := _kept_number(node, base, self._known)) is not None:
            self._known[node.name] = number
            return
        made = _node(node, self._known)
        if base.endswith("_") and not base.endswith("__"):
            made = self._in_place(made)
        self._known[node.name] = Reference(made.name)
        self._nodes.append(made)

    def _in_place(self, made: Node) -> Node:
        """Return a call that changes nothing; the names of what it changed are those of its result.

        Raises:
            NotPlannedError: it changes an input, a parameter or a view.
        """
        target = made.argument(next(iter(made.arguments)))
        _forbid_views(self._nodes, target)
        made = _functional(made)
        for name, value in self._known.items():
            if value == Reference(target):
                self._known[name] = Reference(made.name)
        owner = self._owners.get(target)
        if owner is not None:
            if owner.kind not in {"buffer", "attribute"}:
                raise NotPlannedError(f"forward changes {owner.path or owner.name} in place")
            self._updates[owner.path] = made.name
            self._owners[made.name] = owner
        return made


def _functional(node: Node) -> Node:
    """Return the same call of the operator that changes nothing in place."""
    base, overload = node.aten.split(".")
    if not hasattr(getattr(torch.ops.aten, base[:-1], None), overload):
        raise NotPlannedError(f"forward changes a tensor by aten.{base}, which has no other form")
    return msgspec.structs.replace(node, aten=f"{base[:-1]}.{overload}")


_VIEWS = frozenset(  # they look at the memory of another value
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
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        raise NotPlannedError(f"the graph calls {target}, which is no operator of torch")
    namespace = target.namespace
    if namespace != "aten":
        raise NotPlannedError(f"the graph calls {namespace}::{target.__name__}")
    schema = target._schema  # noqa: SLF001 - torch says it nowhere else
    if schema.is_mutable and not schema.name.endswith("_"):
        raise NotPlannedError(f"forward calls {target}, which writes into its arguments")
    parameters = schema.arguments
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
