"""A program of torch.export's as a graph of records.

It needs torch, so `tracing.py` and its process import it alone.
"""

import operator
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from kernelgen.engines.rows import kernel_row
from kernelgen.graph.graph import (
    FILLS,
    RUNNING,
    Argument,
    Graph,
    GraphInput,
    Item,
    Named,
    Node,
    NotPlannedError,
    Number,
    Reference,
    TensorType,
    call_of,
    written,
)
from kernelgen.graph.graph import InputKind as Kind
from kernelgen.tracing.model.structures import Place

_NORMS = frozenset(("batch_norm", "instance_norm"))
_DROPOUTS = frozenset(("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout"))
_MOST_NUMBERS = 64  # of a constant that a file says one by one
# Regions that a program calls as a whole -> the reason why forward has no graph.
_REGIONS = {
    "autocast": "forward computes under autocast",
    "vmap": "forward calls vmap",
    "lazy_load_decompositions": "forward calls vmap",
    "set_grad_enabled": "forward computes with gradients",
}
# Checks, which compute nothing.
_ASSERTIONS = frozenset(("_assert_async", "_assert_scalar", "_assert_tensor_metadata"))
# Of calls in place: the same that changes nothing, where it has another name.
_FUNCTIONAL = {"bernoulli_.float": "bernoulli.p", "normal_.default": "normal_functional.default"}


class ViewChangedError(NotPlannedError):
    """A forward changes a view or an argument, which a program without such calls can say."""


def by_values(where: str) -> NotPlannedError:
    """Return the error of a forward that decides by what a tensor holds; `where` it does."""
    return NotPlannedError(f"forward depends on values of its inputs ({where})")


def number_of(value: torch.Tensor) -> torch.Tensor | None:
    """Return a 0-dimensional tensor whose value is known, as one that holds it; else None."""
    known = value.constant if isinstance(value, FakeTensor) else value
    return known.detach() if known is not None and not known.shape else None


def memory_of(tensor: torch.Tensor) -> int:
    """Return what tells the memory of a tensor from that of others."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001


class Reader:
    """The nodes of a program of torch.export's, or of a joint one, read one after the other."""

    def __init__(
        self, program: Any, places: list[Place], attributes: frozenset[str], outside: dict[int, str]
    ) -> None:
        self._program, self._attributes, self._outside = program, attributes, outside
        self._values = {} if isinstance(program, ExportedProgram) else program.constants
        self._specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        users = [s.arg.name for s in self._specs.values() if s.kind is InputKind.USER_INPUT]
        self._places = dict(zip(users, places, strict=True))
        self._known: dict[str, Reference | Number] = {}
        self._numbers: dict[str, torch.Tensor] = {}  # those of them that are constants
        self._constants: dict[str, Reference] = {}  # the same as tensors
        self._memory: dict[str, int] = {}  # in which each value lies
        # Memory of what is no copy, though torch.export takes it for one -> what it is.
        self._passed: dict[int, int] = {}
        self._inputs: list[GraphInput] = []
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        # Of a value that stands for an input, as it is by now: which.
        self._owners: dict[str, GraphInput] = {}
        self._updates: dict[str, str] = {}
        self._outputs: tuple[str, ...] = ()

    def graph(self) -> Graph:
        """Read it all; what forward takes and returns as Python is not in a program."""
        for node in self._program.graph.nodes:
            match node.op:
                case _ if node.name in self._values:
                    self._add_number(node, self._values[node.name])
                case "placeholder":
                    self._placeholder(node)
                case "call_function":
                    self._call(node)
                case "output":
                    self._outputs = tuple(self._returned(node.args[0]))
                case _:  # a region, which the call of it tells apart
                    continue
        return Graph(
            arguments=(),
            inputs=tuple(self._inputs),
            nodes=tuple(self._nodes),
            outputs=self._outputs,
            returns="",
            updates=self._updates,
        )

    def _returned(self, values: Iterable[Any]) -> Iterator[str]:
        """Yield the names of what forward returns; what else the program returns are updates."""
        for spec, value in zip(self._program.graph_signature.output_specs, values, strict=True):
            match spec.kind:
                case OutputKind.USER_OUTPUT:
                    yield self._output_name(value)
                case OutputKind.BUFFER_MUTATION:
                    self._updates[str(spec.target)] = self._output_name(value)
                case _:
                    raise NotPlannedError(f"forward changes {spec.target} in place")

    def _output_name(self, output: Any) -> str:
        if not isinstance(output, torch.fx.Node):
            raise NotPlannedError(f"forward leaves {output!r} in place of a tensor")
        if output.name in self._numbers:
            return self._constant(output.name).name
        return cast("Reference", self._known[output.name]).name

    def _placeholder(self, node: torch.fx.Node) -> None:
        spec, name, path, text = self._specs[node.name], node.name, "", ""
        kind: Kind
        match spec.kind:
            case InputKind.USER_INPUT:
                name, kind, text = self._places[node.name]
            case InputKind.CONSTANT_TENSOR:
                value = self._program.constants[str(spec.target)]
                lifted = all("lift_fresh_copy" in _bases(user) for user in node.users)
                if number_of(value) is None and not lifted:
                    name = self._outside.get(id(value), f"of shape {tuple(value.shape)}")
                    raise NotPlannedError(
                        f"forward reads the tensor {name}, which no module of the Model's holds; "
                        "let __init__ keep it, with register_buffer"
                    )
                self._add_number(node, value)
                return
            case InputKind.PARAMETER | InputKind.BUFFER:
                path = spec.target or ""
                kind = "parameter" if spec.kind is InputKind.PARAMETER else "buffer"
                kind = "attribute" if path in self._attributes else kind
            case _:
                raise NotPlannedError("forward reads an object of torch's that is no tensor")
        found = _type(node.meta["val"])
        assert found is not None
        self._owners[name] = GraphInput(name=name, kind=kind, type=found, path=path, text=text)
        if node.users:  # a layer of several paths is read by one of them
            self._know(node, name)
        self._inputs.append(self._owners[name])
        self._types[name] = found

    def _know(self, node: torch.fx.Node, name: str) -> None:
        self._known[node.name] = Reference(name)
        if isinstance(node.meta["val"], torch.Tensor):
            memory = memory_of(node.meta["val"])
            self._memory[node.name] = self._passed.get(memory, memory)

    def _call(self, node: torch.fx.Node) -> None:
        base = _base(node)
        if base in _ASSERTIONS:
            return
        read = [one.name for one in node.all_input_nodes]
        if read and all(name in self._numbers for name in read):
            self._fold(node)
            return
        if _passes_on(node, base):
            # It returns its input itself, which torch.export takes for a copy.
            own, passed = memory_of(node.meta["val"]), self._memory[read[0]]
            self._memory[node.name] = self._passed[own] = passed
            self._known[node.name] = self._known[read[0]]
            return
        made = _functional(_node(node, {**self._known, **self._tensors_of(node)}))
        numbers = [name for name in read if name in self._numbers]
        if numbers and made.aten not in FILLS and kernel_row(made, self._types) is None:
            # torch takes a tensor alone, of the constant's type.
            tensors = {name: self._constant(name) for name in numbers}
            made = _functional(_node(node, {**self._known, **tensors}))
        in_place = base.endswith("_") and not base.endswith("__")
        if made.reads[1:] and (in_place or f"{base}_" in _bases(node)):
            made = msgspec.structs.replace(made, whole=(next(iter(made.arguments)),))
        if in_place:
            if (changed := read[0]) in self._numbers:
                raise NotPlannedError(f"forward changes a constant in place (aten.{base})")
            target = made.argument(next(iter(made.arguments)))
            made = self._in_place(self._in_its_type(made, node), self._memory[changed], target)
        self._know(node, made.name)
        self._add(made)
        if base in _NORMS:
            self._running_statistics(node, made)

    def _running_statistics(self, node: torch.fx.Node, norm: Node) -> None:
        """Add what a norm leaves in its running statistics, as if two further calls did so."""
        given = _arguments(node)
        if not (given.get("training") or given.get("use_input_stats")):
            return
        for key in RUNNING:
            changed = given.get(key)
            if not isinstance(changed, torch.fx.Node):
                continue
            if changed.name in self._numbers:
                raise NotPlannedError(f"forward changes a constant in place (aten.{_base(node)})")
            old = norm.argument(key)
            read: dict[str, Argument] = {"self": Reference(old), "norm": Reference(norm.name)}
            left = call_of(f"{norm.name}_{key}", RUNNING[key], read, self._types[old])
            self._add(self._in_place(left, self._memory[changed.name], old))

    def _add(self, made: Node) -> None:
        self._nodes.append(made)
        self._types |= made.types

    def _add_number(self, node: torch.fx.Node, value: torch.Tensor) -> None:
        """Note that a node is a constant; one without dimensions is a number where it can be."""
        number = number_of(value)
        self._numbers[node.name] = value.detach() if number is None else number
        if number is not None:
            self._known[node.name] = number.item()

    def _tensors_of(self, node: torch.fx.Node) -> dict[str, Reference]:
        """Return the constants that a call reads which are no numbers, or stand in a list."""
        direct = {id(argument) for argument in (*node.args, *node.kwargs.values())}
        read = [one for one in node.all_input_nodes if one.name in self._numbers]
        return {
            one.name: self._constant(one.name)
            for one in read
            if self._numbers[one.name].shape or id(one) not in direct
        }

    def _constant(self, name: str) -> Reference:
        """Return a constant as a tensor that stands in the file.

        Raises:
            NotPlannedError: it is too large for that.
        """
        if (known := self._constants.get(name)) is not None:
            return known
        value = self._numbers[name]
        found = _type(value)
        if found is None or not 0 < value.numel() <= _MOST_NUMBERS or isinstance(value, FakeTensor):
            raise NotPlannedError(
                f"forward makes a tensor of shape {tuple(value.shape)} from numbers; make it in "
                "__init__, with register_buffer"
            )
        text = f"torch.tensor({written(value.tolist())}, dtype={value.dtype})"
        wish = "constant"
        while any(wish == one.name for one in (*self._inputs, *self._places.values())):
            wish += "_"
        self._inputs.append(GraphInput(name=wish, kind="constant", type=found, text=text))
        self._types[wish] = found
        return self._constants.setdefault(name, Reference(wish))

    def _fold(self, node: torch.fx.Node) -> None:
        """Compute what a call makes of constants alone."""
        args, kwargs = torch.fx.map_arg(
            (node.args, dict(node.kwargs)), lambda one: self._numbers[one.name].clone()
        )
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise NotPlannedError(f"forward draws for a constant (aten.{_base(node)})")
        self._add_number(node, node.target(*args, **kwargs))  # type: ignore[operator]

    def _in_its_type(self, made: Node, node: torch.fx.Node) -> Node:
        """Return a call whose result has the type of what it changed, where it has another one.

        A sum of float16 and float32 is float32; added in place to float16, it becomes that.
        """
        base, _, overload = made.aten.partition(".")
        own = made.results[0] if len(made.results) == 1 else None
        if own is None or base.endswith("_") or "::" in base:
            return made
        read = torch.fx.map_arg(_arguments(node), lambda one: one.meta["val"])
        defaults = {name: made.arguments[name] for name in [*made.arguments][: made.given]}
        found = _type(getattr(getattr(torch.ops.aten, base), overload)(**{**defaults, **read}))
        if found is None or found.dtype == own.dtype:
            return made
        wide = msgspec.structs.replace(made, name=f"{made.name}_{found.dtype}", results=(found,))
        self._add(wide)
        cast: dict[str, Argument] = {
            "self": Reference(wide.name),
            "dtype": Named(own.dtype),
            "non_blocking": False,
            "copy": False,
            "memory_format": None,
        }
        return msgspec.structs.replace(made, aten="to.dtype", arguments=cast, given=2, named=())

    def _in_place(self, made: Node, memory: int, target: str) -> Node:
        """Return a call that changes nothing; the names of what it changed are those of its result.

        Raises:
            ViewChangedError: another value lies in the same memory.
            NotPlannedError: it changes an input or a parameter.
        """
        for name, one in self._memory.items():
            if one == memory and self._known[name] != Reference(target):
                words = f"forward changes a view in place ({made.aten} of {target})"
                raise (NotPlannedError if self._passed else ViewChangedError)(words)
        if made.aten.split(".")[0].endswith("_"):  # it has no other form
            given: dict[str, Argument] = {"self": Reference(target), "memory_format": None}
            copy = call_of(f"{made.name}_copy", "clone.default", given, self._types[target])
            self._add(copy)
            changed = {**made.arguments, next(iter(made.arguments)): Reference(copy.name)}
            made = msgspec.structs.replace(made, arguments=changed)
        for name, value in self._known.items():
            if value == Reference(target):
                self._known[name] = Reference(made.name)
        if (owner := self._owners.get(target)) is not None:
            if owner.kind not in {"buffer", "attribute"} or not owner.path:
                place = owner.path or owner.text or owner.name
                raise NotPlannedError(f"forward changes {place} in place")
            self._updates[owner.path] = made.name
            self._owners[made.name] = owner
            if made.aten in {*FILLS, "zero.default"}:
                # Whatever was there before need not be known.
                arguments = {**made.arguments, "self": Reference(owner.name)}
                made = msgspec.structs.replace(made, arguments=arguments)
        return made


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Return what a call of an operator of torch's gives, by name."""
    parameters = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001
    return dict(zip((p.name for p in parameters), node.args, strict=False)) | node.kwargs


def _passes_on(node: torch.fx.Node, base: str) -> bool:
    """Whether a call returns its first argument itself, though the schema does not say so."""
    if base == "type_as":
        own, other = (one.meta["val"] for one in _arguments(node).values())
        return bool(own.dtype == other.dtype)
    return base in _DROPOUTS and not (node.args[1] and node.args[2])


def _functional(node: Node) -> Node:
    """Return a call, in place of one in place the same that changes nothing, where there is one."""
    base, _, overload = node.aten.partition(".")
    if not base.endswith("_") or base.endswith("__") or "::" in base:
        return node
    aten = _FUNCTIONAL.get(node.aten, f"{base[:-1]}.{overload}")
    name, overload = aten.split(".")
    found = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if found is None:
        return node
    defaults = {p.name: p.default_value for p in found._schema.arguments}  # noqa: SLF001
    others = [n for n, key in enumerate(node.arguments, 1) if node.arguments[key] != defaults[key]]
    return msgspec.structs.replace(node, aten=aten, given=max([node.given, *others]))


def _base(node: torch.fx.Node) -> str:
    """Return `add` for the operator add.Tensor."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _bases(node: torch.fx.Node) -> set[str]:
    """Return what `_base` does, and of nodes of another program that this one is made of."""
    others = (str(one.target).split(".")[1:2] for one in node.meta.get("from_node", ()))
    return {_base(node)}.union(*others)


def _node(node: torch.fx.Node, renamed: dict[str, Reference | Number]) -> Node:
    module = layer = ""
    if stack := node.meta.get("nn_module_stack"):
        module, kind = list(stack.values())[-1]
        module = module.removeprefix("L['self'].").removeprefix("L['self']")
        layer = kind.rpartition(".")[2] if kind.startswith("torch.nn.modules.") else ""
    if node.target is operator.getitem:
        value, index = (_argument(one, renamed) for one in node.args)
        found = _type(node.meta["val"])
        return call_of(node.name, "getitem", {"value": value, "index": index}, found)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
        words = (why for name, why in _REGIONS.items() if name in str(target))
        raise NotPlannedError(
            next(words, f"the graph calls {target}, which is no operator of torch")
        )
    schema = target._schema  # noqa: SLF001 - torch says it nowhere else
    if schema.is_mutable and not schema.name.endswith("_"):
        raise ViewChangedError(f"forward calls {target}, which writes into its arguments")
    said, parameters = _arguments(node), schema.arguments
    values = {p.name: _argument(said.get(p.name, p.default_value), renamed) for p in parameters}
    given = max((place for place, name in enumerate(values, 1) if name in said), default=0)
    draws = torch.Tag.nondeterministic_seeded in target.tags
    if draws and values.get("layout") is not None and "device" in values:
        values["device"] = None  # see OnCpu
    result = node.meta["val"]
    results = result if isinstance(result, list | tuple) else (result,)
    if len(results) == 1 and results is result:
        results = (None,)  # a list of one, which is no tensor
    if any(isinstance(one, torch.SymInt | torch.SymFloat | torch.SymBool) for one in results):
        raise by_values(f"aten.{_base(node)}")
    return Node(
        name=node.name,
        aten=("" if target.namespace == "aten" else f"{target.namespace}::") + target.__name__,
        arguments=values,
        given=given,
        named=tuple(p.name for p in parameters if p.kwarg_only),
        results=tuple(_type(value) for value in results),
        module=module,
        layer=layer,
        draws=draws,
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
        case None | bool() | float() | str():
            return value
        case int():
            return int(value)
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
