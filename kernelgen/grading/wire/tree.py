"""Arguments and results as plain data: a tree of containers and scalars, its tensors listed beside.

A tree crosses a process border as JSON; its tensors' bytes cross separately (transport.py). What a
candidate returns is described, never unpickled, so a tree from it can do nothing but be wrong.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec

if TYPE_CHECKING:
    import torch


MAX_DEPTH = 32
"""Containers around a value that are described; what lies deeper is opaque."""

MAX_NODES = 10_000
"""Values and containers of one tree, beside the outermost; a container of more is opaque."""

# Of texts and sizes as JSON has them at the longest, a character as its escape and a size of 64
# bits in decimal. With what MAX_NODES others take, a record is shorter than a candidate's may be.
_MAX_TREE_BYTES = 2 << 20
_BYTES_A_CHARACTER = 6
_BYTES_A_DIMENSION = 2 * 20
_MAX_BITS = 64
_NAME_CHARACTERS = 80
_MAX_WORD = (1 << 63) - 1

# No number of an honest sender needs more, and the next reader may take no more.
Word = Annotated[int, msgspec.Meta(ge=-_MAX_WORD, le=_MAX_WORD)]
# Of a dict. JSON keeps their types apart, and a float that it has no word for is none of them.
_Part = Union[None, bool, int, float, str]  # noqa: UP007 (an alias, as below)
Key = Union[_Part, tuple[_Part, ...]]  # noqa: UP007


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor's form, and where its bytes lie in the arena.

    Attributes:
        dtype: torch's name of it, such as `float32`.
        stride: in elements.
        device: type of the device that it was on, `cuda` or `cpu`.
        offset: in bytes from the arena's start, or -1 if its bytes were not sent.
        nbytes: of memory from the first element to the last.
        of_input: some of that is memory of an input of the call.
    """

    dtype: str
    shape: tuple[Word, ...]
    stride: tuple[Word, ...]
    device: str
    offset: Word
    nbytes: Word
    of_input: bool = False


class TensorLeaf(msgspec.Struct, frozen=True, tag="tensor"):
    """The tensor at this position of the list that goes with the tree."""

    index: int


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """None, a bool, an int, a finite float or a string."""

    value: bool | int | float | str | None


class SpecialFloat(msgspec.Struct, frozen=True, tag="float"):
    """A float that JSON has no word for: `inf`, `-inf` or `nan`."""

    text: str


class Items(msgspec.Struct, frozen=True, tag="items"):
    """A list or a tuple."""

    kind: str
    items: tuple[Node, ...]


class Entries(msgspec.Struct, frozen=True, tag="entries"):
    """A dict, in the order of `sorted_keys`."""

    entries: tuple[tuple[Key, Node], ...]


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Anything else, by the name of its type."""

    type_name: str


# A string annotation above names this alias; msgspec resolves it when the first tree is decoded.
Node = Union[TensorLeaf, Scalar, SpecialFloat, Items, Entries, Opaque]  # noqa: UP007
Place = tuple[str | int, ...]


def describe(value: Any, put: Callable[[torch.Tensor], int]) -> Node:
    """Turn a value into a tree.

    What is deeper than MAX_DEPTH, or would make the tree larger than MAX_NODES or its record longer
    than any channel takes, is opaque: a result may have no end.
    """
    return _describe(value, put, _Room(), 0)


class _Room:
    """Room that a tree may still take."""

    def __init__(self) -> None:
        self._nodes, self._bytes = MAX_NODES, _MAX_TREE_BYTES

    def takes(self, nodes: int, nbytes: int) -> bool:
        """Whether so much still fits; it is taken if it does."""
        if nodes > self._nodes or nbytes > self._bytes:
            return False
        self._nodes -= nodes
        self._bytes -= nbytes
        return True


def _describe(value: Any, put: Callable[[torch.Tensor], int], room: _Room, depth: int) -> Node:
    kind = type(value)
    if depth > MAX_DEPTH:
        return Opaque(f"{kind.__name__[:_NAME_CHARACTERS]} inside {depth} containers")
    # Tuples of every kind, torch's named results and shapes among them, are what their items are.
    if kind is list or isinstance(value, tuple):
        items = tuple(value) if kind is list else tuple(tuple.__iter__(value))
        word = "list" if kind is list else "tuple"
        if not room.takes(len(items), 0):
            return _too_many(word, len(items), "items")
        return Items(word, tuple(_describe(item, put, room, depth + 1) for item in items))
    if kind in (dict, OrderedDict):
        if not room.takes(len(value), 0):
            return _too_many("dict", len(value), "entries")
        if all(_is_key(key, room) for key in value):
            # By key: equal dicts have equal trees, and their tensors the same places in the list.
            keys = sorted_keys(value)
            return Entries(
                tuple((key, _describe(value[key], put, room, depth + 1)) for key in keys)
            )
    return _describe_leaf(value, put, room)


def sorted_keys(value: dict[Any, Any]) -> list[Any]:
    """Return a dict's keys in an order of their own, whatever they are."""
    return sorted(value, key=repr)


def _is_key(key: object, room: _Room) -> bool:
    """Whether a key can be sent as it is: a scalar, or a tuple of scalars."""
    parts = key if type(key) is tuple else (key,)
    return room.takes(len(parts) - 1, 0) and all(
        part is None
        or type(part) is bool
        or (type(part) is int and part.bit_length() <= _MAX_BITS)
        or (type(part) is float and math.isfinite(part))
        or _can_be_sent(part, room)
        for part in parts
    )


def _too_many(word: str, count: int, parts: str) -> Opaque:
    return Opaque(f"{word} of {count} {parts}, where {MAX_NODES} values in all are looked at")


def _can_be_sent(value: object, room: _Room) -> bool:
    if type(value) is not str or not room.takes(0, len(value) * _BYTES_A_CHARACTER):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _describe_leaf(value: Any, put: Callable[[torch.Tensor], int], room: _Room) -> Node:
    import torch

    kind = type(value)
    node: Node = Opaque(_name_of(kind))
    # A subclass may compute when looked at: only the class itself has bytes that are its value.
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        # A zero tensor has a shape and no memory.
        strided = value.layout is torch.strided and not value._is_zerotensor()  # noqa: SLF001
        plain = strided and not value.is_complex()
        if not plain:
            node = Opaque(f"{value.layout} {value.dtype} tensor")
        elif room.takes(0, value.dim() * _BYTES_A_DIMENSION):
            node = TensorLeaf(put(value))
        else:
            node = Opaque(f"tensor of {value.dim()} dimensions")
    elif kind is str:
        sent = _can_be_sent(value, room)
        node = Scalar(value) if sent else Opaque(f"text of {len(value)} characters")
    elif kind is int:
        bits = value.bit_length()
        node = Scalar(value) if bits <= _MAX_BITS else Opaque(f"int of {bits} bits")
    elif value is None or kind is bool:
        node = Scalar(value)
    elif kind is float:
        node = Scalar(value) if math.isfinite(value) else SpecialFloat(repr(value))
    return node


def _name_of(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"[:_NAME_CHARACTERS]
    return name.encode("utf-8", errors="replace").decode("utf-8")


def require_shallow(tree: Node) -> None:
    """Refuse a tree nested deeper than `describe` nests; raises ValueError."""
    # One level after the other: a recursion is what the sender may be after.
    level: list[Node] = [tree]
    for _ in range(MAX_DEPTH + 2):
        below: list[Node] = []
        for node in level:
            if isinstance(node, Items):
                below.extend(node.items)
            elif isinstance(node, Entries):
                below.extend(item for _, item in node.entries)
        if not below:
            return
        level = below
    raise ValueError("a value nested too deeply")


def rebuild(node: Node, tensors: list[torch.Tensor]) -> Any:
    """Turn a tree back into a value.

    Raises:
        TypeError: the tree holds something opaque.
        ValueError: it names a tensor that is not in the list.
    """
    if isinstance(node, TensorLeaf):
        if not 0 <= node.index < len(tensors):
            raise ValueError(f"a tree names tensor {node.index} of {len(tensors)}")
        return tensors[node.index]
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, SpecialFloat):
        return float(node.text)
    if isinstance(node, Items):
        items = [rebuild(item, tensors) for item in node.items]
        return tuple(items) if node.kind == "tuple" else items
    if isinstance(node, Entries):
        return {key: rebuild(item, tensors) for key, item in node.entries}
    raise TypeError(f"a {node.type_name} cannot be sent to another process")


def leaves(node: Node, place: Place = ()) -> Iterator[tuple[Place, Node]]:
    """Yield every leaf with its place: positions, and for keys of dicts their texts.

    A key's text is there once, however many values it leads to.
    """
    if isinstance(node, Items):
        for position, item in enumerate(node.items):
            yield from leaves(item, (*place, position))
    elif isinstance(node, Entries):
        for key, item in node.entries:
            yield from leaves(item, (*place, repr(key)))
    else:
        yield place, node


def path_to(place: Place, root: str = "output") -> str:
    """Return a place in words, such as `output[1]` or `output['mean']`."""
    return root + "".join(f"[{part}]" for part in place)


def outline(node: Node, tensors: tuple[TensorSpec, ...]) -> str:
    """Say in a few words what a tree is, such as `tuple of 2: tensor (4, 8), None`."""
    if isinstance(node, TensorLeaf):
        return f"tensor {tensors[node.index].shape}"
    if isinstance(node, Scalar):
        return repr(node.value)
    if isinstance(node, SpecialFloat):
        return node.text
    if isinstance(node, Items):
        inner = ", ".join(outline(item, tensors) for item in node.items[:4])
        return f"{node.kind} of {len(node.items)}: {inner}"
    if isinstance(node, Entries):
        return "dict with keys " + ", ".join(repr(key) for key, _ in node.entries[:6])
    return node.type_name
