"""What torch.export gives, as a graph of records.

It needs torch, so `tracing.py` and its process import it alone.
"""

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

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
from kernelgen.planning.graph import InputKind as Kind

_DROPOUTS = frozenset(("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout"))
# Facts about the trace itself, not a part of what is computed.
_ASSERTIONS = frozenset(("_assert_scalar", "_assert_tensor_metadata"))


class NotPlannedError(Exception):
    """A forward does what a graph cannot say; the message is for the user."""


class ViewChangedError(NotPlannedError):
    """A forward changes a view in place, which a program without such calls can say."""


def by_values(where: str) -> NotPlannedError:
    """Return the error of a forward that decides by what a tensor holds; `where` it does."""
    return NotPlannedError(f"forward depends on values of its inputs ({where})")


def number_of(value: torch.Tensor) -> torch.Tensor | None:
    """Return a 0-dimensional tensor whose value is known, as one that holds it; else None."""
    known = value.constant if isinstance(value, FakeTensor) else value
    return known.detach() if known is not None and not known.shape else None


class Reader:
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
        self._numbers: dict[str, torch.Tensor] = {}  # those of them that are constants
        self._memory: dict[str, int] = {}  # in which each value lies
        # Memory of what is no copy, though torch.export takes it for one -> what it is.
        self._passed: dict[int, int] = {}
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
                    self._outputs = tuple(self._returned(node.args[0]))
                case _:
                    raise NotPlannedError(f"the graph has a node of kind {node.op}")
        spec = self._program.call_spec.out_spec
        return Graph(
            arguments=self._names,
            inputs=tuple(self._inputs),
            nodes=tuple(self._nodes),
            outputs=self._outputs,
            returns="%s" if spec is None else _returns(spec.unflatten(["%s"] * spec.num_leaves)),
            updates=self._updates,
            fixed=self._fixed,
        )

    def _returned(self, values: Iterable[Any]) -> Iterator[str]:
        """Yield the names of what forward returns; what else the program returns are updates."""
        for spec, value in zip(self._program.graph_signature.output_specs, values, strict=True):
            match spec.kind:
                case OutputKind.USER_OUTPUT:
                    yield _output_name(value, self._known)
                case OutputKind.BUFFER_MUTATION:
                    self._updates[str(spec.target)] = _output_name(value, self._known)
                case _:
                    raise NotPlannedError(f"forward changes {spec.target} in place")

    def _placeholder(self, node: torch.fx.Node) -> None:
        spec, name, path = self._specs[node.name], node.name, ""
        kind: Kind
        match spec.kind:
            case InputKind.USER_INPUT:
                name, value = self._by_user[node.name]
                if not isinstance(value, torch.Tensor | float):
                    self._fixed[name] = value
                    return
                kind = "scalar" if isinstance(value, float) else "input"
            case InputKind.CONSTANT_TENSOR:
                self._add_number(node, self._program.constants[str(spec.target)])
                return
            case InputKind.PARAMETER | InputKind.BUFFER:
                path = spec.target or ""
                kind = "parameter" if spec.kind is InputKind.PARAMETER else "buffer"
                kind = "attribute" if path in self._attributes else kind
            case _:
                raise NotPlannedError(f"the graph has an input of kind {spec.kind.name.lower()}")
        found = _type(node.meta["val"])
        assert found is not None
        self._owners[name] = GraphInput(name=name, kind=kind, type=found, path=path)
        self._know(node, name)
        self._inputs.append(self._owners[name])

    def _know(self, node: torch.fx.Node, name: str) -> None:
        self._known[node.name] = Reference(name)
        if isinstance(node.meta["val"], torch.Tensor):
            memory = _memory_of(node)
            self._memory[node.name] = self._passed.get(memory, memory)

    def _call(self, node: torch.fx.Node) -> None:
        base = _base(node)
        if base in _ASSERTIONS:
            return
        read = [one.name for one in node.all_input_nodes]
        if read and all(name in self._numbers for name in read):
            self._fold(node)
            return
        if base in _DROPOUTS and not (node.args[1] and node.args[2]):
            # It returns its input itself, which torch.export takes for a copy.
            self._memory[node.name] = self._passed[_memory_of(node)] = self._memory[read[0]]
            self._known[node.name] = self._known[read[0]]
            return
        made = _node(node, self._known)
        if base.endswith("_") and not base.endswith("__"):
            if (changed := read[0]) in self._numbers:
                raise NotPlannedError(f"forward changes a constant in place (aten.{base})")
            made = self._in_place(made, self._memory[changed])
        self._know(node, made.name)
        self._nodes.append(made)

    def _add_number(self, node: torch.fx.Node, value: Any) -> None:
        """Note that a node is a constant, which stands in the graph as a number.

        Raises:
            NotPlannedError: it is a larger tensor.
        """
        number = number_of(value) if isinstance(value, torch.Tensor) else None
        if number is None:
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
            raise NotPlannedError(
                f"forward makes a tensor{shape} from numbers; make it in __init__, with "
                "register_buffer"
            )
        self._numbers[node.name] = number
        self._known[node.name] = number.item()

    def _fold(self, node: torch.fx.Node) -> None:
        """Compute what a call makes of constants alone."""
        args, kwargs = torch.fx.map_arg(
            (node.args, dict(node.kwargs)), lambda one: self._numbers[one.name].clone()
        )
        self._add_number(node, node.target(*args, **kwargs))  # type: ignore[operator]

    def _in_place(self, made: Node, memory: int) -> Node:
        """Return a call that changes nothing; the names of what it changed are those of its result.

        Raises:
            ViewChangedError: another value lies in the same memory.
            NotPlannedError: it changes an input or a parameter.
        """
        target = made.argument(next(iter(made.arguments)))
        for name, one in self._memory.items():
            if one == memory and self._known[name] != Reference(target):
                words = f"forward changes a view in place ({made.aten} of {target})"
                raise (NotPlannedError if self._passed else ViewChangedError)(words)
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


def _memory_of(node: torch.fx.Node) -> int:
    return int(node.meta["val"].untyped_storage()._cdata)  # noqa: SLF001


def _functional(node: Node) -> Node:
    """Return the same call of the operator that changes nothing in place."""
    base, overload = node.aten.split(".")
    if not hasattr(getattr(torch.ops.aten, base[:-1], None), overload):
        raise NotPlannedError(f"forward changes a tensor by aten.{base}, which has no other form")
    return msgspec.structs.replace(node, aten=f"{base[:-1]}.{overload}")


def _base(node: torch.fx.Node) -> str:
    """Return `add` for the operator add.Tensor."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _output_name(output: Any, renamed: dict[str, Reference | Number]) -> str:
    if not isinstance(output, torch.fx.Node):
        raise NotPlannedError(f"forward returns {output!r} beside tensors")
    found = renamed[output.name]
    if not isinstance(found, Reference):
        raise NotPlannedError(f"forward returns the constant {found!r}")
    return found.name


def _returns(value: Any) -> str:
    """Return what forward returns as Python; `%s` stands for a tensor, in both."""
    parts = [_returns(part) for part in value] if isinstance(value, list | tuple) else []
    if isinstance(value, dict):
        items = (f"{key!r}: ".replace("%", "%%") + _returns(value[key]) for key in value)
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    if isinstance(value, tuple):
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if value != "%s":
        raise NotPlannedError(f"forward returns a {type(value).__name__}")
    return "%s"


def _node(node: torch.fx.Node, renamed: dict[str, Reference | Number]) -> Node:
    module = layer = ""
    if stack := node.meta.get("nn_module_stack"):
        module, kind = list(stack.values())[-1]
        module = module.removeprefix("L['self'].").removeprefix("L['self']")
        layer = kind.rpartition(".")[2] if kind.startswith("torch.nn.modules.") else ""
    if node.target is operator.getitem:
        pair = zip(("value", "index"), node.args, strict=True)
        arguments = {name: _argument(value, renamed) for name, value in pair}
        types = (_type(node.meta["val"]),)
        return Node(name=node.name, aten="getitem", arguments=arguments, given=2, results=types)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        raise NotPlannedError(f"the graph calls {target}, which is no operator of torch")
    if target.namespace != "aten":
        raise NotPlannedError(f"the graph calls {target.namespace}::{target.__name__}")
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
        raise by_values(f"aten.{_base(node)}")
    return Node(
        name=node.name,
        aten=target.__name__,
        arguments=values,
        given=given,
        named=tuple(p.name for p in parameters if p.kwarg_only),
        results=tuple(_type(value) for value in results),
        module=module,
        layer=layer,
    )


def _argument(value: Any, renamed: dict[str, Reference | Number]) -> Argument:
    if isinstance(value, list | tuple):
        return tuple(_item(item, renamed) for item in value)
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
