"""A Model's forward as a graph of ATen operators at the main case's shapes.

It is what torch.export gives before any decomposition, in records that need no torch to be read.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, TypeVar, cast

import msgspec

MATRIX = 2  # dimensions
# Operators for the running statistics that a norm leaves in training mode, of which torch's own
# says nothing: (self, norm), the statistics before it, and its result.
RUNNING = {name: f"kernelgen::{name}" for name in ("running_mean", "running_var")}
FILLS = frozenset(("fill.Scalar", "fill.Tensor"))
# Operators that look at memory in another way.
VIEWS = frozenset(
    """
    alias chunk detach expand expand_as flatten getitem movedim narrow numpy_T permute select slice
    split squeeze t transpose unbind unflatten unfold unsqueeze view view_as
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
InputKind = Literal["input", "scalar", "parameter", "buffer", "attribute", "constant"]
KindT = TypeVar("KindT")


class NotPlannedError(Exception):
    """A forward does what a graph cannot say; the message is for the user."""


class TensorType(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a tensor without its values.

    Attributes:
        shape: empty for a 0-dimensional one.
        strides: in elements.
        dtype: `float32`, as torch names it.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of the elements; those that are expanded count once."""
        elements = prod(
            n for n, stride in zip(self.shape, self.strides, strict=True) if stride or not n
        )
        bits = re.search(r"\d+", self.dtype)  # 32 of float32; a bool's name has none
        return elements * (int(bits[0]) // 8 if bits else 1)

    def transposed(self) -> "TensorType":
        """Return the type of the same tensor with its last two dimensions swapped."""
        shape, strides = self.shape, self.strides
        return msgspec.structs.replace(
            self,
            shape=(*shape[:-2], shape[-1], shape[-2]),
            strides=(*strides[:-2], strides[-1], strides[-2]),
        )


NUMBER = TensorType(shape=(), strides=(), dtype="float64")  # of a float of Python's


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of contiguous memory."""
    return tuple(prod(max(size, 1) for size in shape[d + 1 :]) for d in range(len(shape)))


def contiguous(shape: Sequence[int], dtype: str = "float32") -> TensorType:
    """Return the type of a tensor whose elements lie in order."""
    return TensorType(shape=tuple(shape), strides=strides_of(shape), dtype=dtype)


def is_contiguous(found: TensorType) -> bool:
    """Return whether a tensor's elements lie in order."""
    pairs = zip(found.shape, found.strides, strides_of(found.shape), strict=True)
    return 0 in found.shape or all(size == 1 or own == in_order for size, own, in_order in pairs)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes are broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))


class Reference(msgspec.Struct, frozen=True, tag="value"):
    """A value of the graph, by its name."""

    name: str


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A dtype, memory format, layout or device: an attribute of torch, such as `float32`."""

    name: str

    def __str__(self) -> str:
        return self.name


Number = bool | int | float
Scalar = bool | int | float | str | None
PlainValue = Scalar | list["PlainValue"] | tuple["PlainValue", ...]
Item = Reference | Named | Scalar
Argument = Item | tuple[Item, ...]


class SizeOf(msgspec.Struct, frozen=True, kw_only=True):
    """factor times a size of an input.

    Attributes:
        alike: other dimensions of inputs that have this size, so that it may be theirs.
    """

    input: str
    dim: int
    factor: int
    alike: frozenset[tuple[str, int]] = frozenset()


class GraphInput(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that forward starts from.

    Attributes:
        name: of the value; of forward's parameter, if it is one.
        kind: `scalar` is a float that forward gets, here a 0-dimensional float64; `attribute` a
            tensor that a module holds without having registered it, so that no `.to()` moves it;
            `constant` a tensor that forward makes from numbers.
        path: of a parameter, buffer or attribute, such as `net.0.weight`.
        text: Python for what has neither forward's parameter nor a path: `state[0]` of a parameter,
            `self.scales[0]` of the Model's, `torch.tensor([1.0])`.
        size: what a `scalar` is that forward does not get, but finds in another input.
    """

    name: str
    kind: InputKind
    type: TensorType
    path: str = ""
    text: str = ""
    size: SizeOf | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a float of Python's."""
        return self.kind == "scalar"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an operator.

    Attributes:
        name: of its result, or of the first one.
        aten: `gelu.default`; `getitem` takes a result out of several.
        arguments: all of its parameters by name, in ATen's order, defaults filled in.
        given: how many of them the call gives; the others are at their defaults.
        named: those that a call gives by name alone.
        whole: parameters whose tensors have the result's shape: others may not broadcast them.
    """

    name: str
    aten: str
    arguments: dict[str, Argument]
    given: int
    named: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


class Node(Call, frozen=True, kw_only=True):
    """A call in a forward.

    Attributes:
        results: types of its results; None is one that is no tensor.
        module: path of the layer that calls it, "" for the Model itself.
        layer: that layer's class where it is one of torch.nn's, such as `GroupNorm`; else "".
        draws: it takes random numbers, so that what draws after it depends on it.
    """

    results: tuple[TensorType | None, ...]
    module: str = ""
    layer: str = ""
    draws: bool = False

    def take(self, name: str, kind: type[KindT]) -> KindT:
        """Return an argument that is of a kind.

        Raises:
            TypeError: it is of another.
        """
        argument = self.arguments[name]
        if not isinstance(argument, kind):
            raise TypeError(f"{self.aten}: {name} is {argument!r}")
        return argument

    def argument(self, name: str) -> str:
        """Return the name of the value that an argument is; raises TypeError if it is none."""
        return self.take(name, Reference).name

    @property
    def reads(self) -> list[str]:
        """The names of the values in its arguments."""
        return references(*self.arguments.values())

    @property
    def type(self) -> TensorType:
        """The type of its only result, a tensor."""
        (found,) = self.results
        assert found is not None
        return found

    @property
    def types(self) -> dict[str, TensorType]:
        """The type of its result, or of the first of several, by its name, if that is a tensor."""
        first = self.results[0]
        return {} if first is None else {self.name: first}

    @property
    def transposes(self) -> bool:
        """Whether it is a view whose last two dimensions are swapped, and no other."""
        found = self.results[0]
        rank = 0 if found is None else len(found.shape)
        if rank < MATRIX:
            return False
        match self.aten:
            case "numpy_T.default" | "t.default":
                return rank == MATRIX
            case "mT.default":
                return True
            case "transpose.int":
                ends = {self.arguments["dim0"], self.arguments["dim1"]}
                return {d % rank for d in ends if isinstance(d, int)} == {rank - 1, rank - 2}
            case "permute.default":
                order = [d % rank for d in self.take("dims", tuple) if isinstance(d, int)]
                return order == [*range(rank - 2), rank - 1, rank - 2]
            case _:
                return False

    def calling(self, aten: str, /, **arguments: Argument) -> "Node":
        """Return a node with the same result that calls another operator, by all its arguments."""
        made = {"aten": aten, "arguments": arguments, "given": len(arguments), "whole": ()}
        return msgspec.structs.replace(self, **made)


def call_of(
    name: str, aten: str, arguments: dict[str, Argument], made: TensorType | None, **others: Any
) -> Node:
    """Return a call that gives all of its arguments, and has one result."""
    given = len(arguments)
    return Node(name=name, aten=aten, arguments=arguments, given=given, results=(made,), **others)


class Backward(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a graph of forward and backward, whose last outputs are gradients.

    Attributes:
        upstream: inputs that are gradients of outputs -> the number of the output.
        gradients: names of the inputs whose gradients the last outputs are.
    """

    upstream: dict[str, int]
    gradients: tuple[str, ...]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A forward, or with `backward` that and its gradients.

    Attributes:
        arguments: forward's parameters in order, those that are not in the graph included, the last
            one perhaps `*args`.
        kinds: types of those that are no tensor, such as `list`.
        inputs: in order.
        nodes: in an order in which they can run.
        outputs: names of what forward returns.
        returns: what forward returns as Python, with `%s` for each of them: `(%s, {'max': %s})`.
        updates: path of a buffer -> name of the value that forward leaves in it.
        fixed: Python for what forward gets that is no tensor and no float, for sizes of structures,
            and for how tensors lie in memory where forward asks -> the value that is in the graph,
            as Python: `len(state)` -> `2`.
        decided: sizes by which forward has decided what it does, in order.
        asked: `rank` where forward depends on how many dimensions a tensor has, `end` where it
            finds one from the last, `sizes` where it reads one.
        made_like: the constructor's parameters -> the likeness of what else Model was made with,
            tensors aside.
        bound: (input, dimension) of sizes that forward takes no others of, as far as is known.
        made_with: the constructor's parameters -> the plain values (`is_plain`) that Model was made
            with.
        indexed: paths, up to a number in them that is a position in a list of layers or
            parameters: `net.0`, of `net.0.weight`. Other numbers are names.
    """

    arguments: tuple[str, ...]
    kinds: dict[str, str] = {}
    inputs: tuple[GraphInput, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    returns: str
    updates: dict[str, str] = {}
    fixed: dict[str, str] = {}
    decided: tuple[int, ...] = ()
    asked: frozenset[str] = frozenset()
    bound: frozenset[tuple[str, int]] = frozenset()
    made_with: dict[str, Any] = {}
    made_like: dict[str, str] = {}
    indexed: frozenset[str] = frozenset()
    backward: Backward | None = None

    @property
    def returned(self) -> int:
        """How many of the outputs forward returns, which are the first."""
        return len(self.outputs) - len(self.backward.gradients if self.backward else ())

    @property
    def input_types(self) -> dict[str, TensorType]:
        """The types of the inputs, by name."""
        return {i.name: i.type for i in self.inputs}

    @property
    def types(self) -> dict[str, TensorType]:
        """The types of all values but the parts of several results, by name."""
        types = self.input_types
        for node in self.nodes:
            types |= node.types
        return types

    @property
    def readers(self) -> Counter[str]:
        """How often each value is read or returned, by name."""
        ends = (*self.outputs, *self.updates.values())
        return Counter((*(name for node in self.nodes for name in node.reads), *ends))


def is_plain(value: object) -> bool:
    """Return whether a value is one that its repr says whole."""
    if type(value) is dict:
        return all(map(is_plain, (*value, *value.values())))
    if type(value) in {list, tuple}:
        return all(map(is_plain, cast("list[object]", value)))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in {bool, int, str}


# Addresses, functions of one name, orders of sets, and names of the module that is traced.
_DIFFERS = re.compile(
    r" at 0x|<lambda>|<locals>|[Tt]ensor\(|^(?:frozen)?set\(|^{[^:]*$|\breference\."
)


def likeness(value: Any) -> str:
    """Return the name of a function, class or module, or the repr of another object.

    Raises:
        NotPlannedError: another object may have the same.
    """
    text = str(getattr(value, "__name__", repr(value)))
    if _DIFFERS.search(f"{text} {getattr(value, '__qualname__', '')}"):
        kind = type(value).__name__
        raise NotPlannedError(f"Model is made with a {kind} that no text tells from another")
    return text


def written(value: object, known: Callable[[object], str | None] = lambda _: None) -> str:
    """Return Python for a value, a structure of values or a dtype of torch's.

    Args:
        value: an OrderedDict is written as a dict, a namedtuple as a tuple.
        known: Python for such a value; None where it has no other than usual.

    Raises:
        NotPlannedError: no Python says it whole.
    """
    kind = type(value)
    if (text := known(value)) is not None:
        return text
    if isinstance(value, dict) and kind.__module__ in {"builtins", "collections"}:
        items = (f"{written(key)}: {written(part, known)}" for key, part in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        parts = ", ".join(written(part, known) for part in value)
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{',' * (len(value) == 1)})"
    if isinstance(value, float) and kind is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if kind.__module__ == "torch" and kind.__name__ in {"dtype", "layout", "memory_format"}:
        return str(value)
    if not is_plain(value):
        raise NotPlannedError(f"forward takes or returns an object of class {kind.__name__}")
    return repr(value)


def references(*arguments: Argument) -> list[str]:
    """Return the names of the values in arguments."""
    return [item.name for item in items_of(*arguments) if isinstance(item, Reference)]


def items_of(*arguments: Argument) -> list[Item]:
    """Return arguments, those that are tuples item by item."""
    return [item for one in arguments for item in (one if isinstance(one, tuple) else (one,))]


def renamed(node: Node, name_of: Callable[[str], str]) -> dict[str, Argument]:
    """Return a node's arguments with other names of their values."""

    def named(item: Item) -> Item:
        return Reference(name_of(item.name)) if isinstance(item, Reference) else item

    return {
        key: tuple(map(named, one)) if isinstance(one, tuple) else named(one)
        for key, one in node.arguments.items()
    }
