"""Arguments and results as plain data: a tree of containers and scalars, its tensors listed beside.

A tree crosses a process border as JSON; its tensors' bytes cross separately (transport.py). What a
candidate returns is described, never unpickled, so a tree from it can do nothing but be wrong.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Union

import msgspec

if TYPE_CHECKING:
    import torch


MAX_DEPTH = 32
"""Containers around a value that are described; what lies deeper is opaque."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor's form, and where its bytes lie in the arena.

    Attributes:
        dtype: torch's name of it, such as `float32`.
        shape: sizes.
        stride: in elements.
        device: type of the device that it was on, `cuda` or `cpu`.
        offset: in bytes from the arena's start, or -1 if its bytes were not sent.
        nbytes: of memory from the first element to the last.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    offset: int
    nbytes: int


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
    """A dict with string keys, sorted."""

    entries: tuple[tuple[str, Node], ...]


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Anything else, by the name of its type."""

    type_name: str


# A string annotation above names this alias; msgspec resolves it when the first tree is decoded.
Node = Union[TensorLeaf, Scalar, SpecialFloat, Items, Entries, Opaque]  # noqa: UP007


def describe(value: Any, put: Callable[[torch.Tensor], int], depth: int = 0) -> Node:
    """Turn a value into a tree.

    Args:
        value: what a get_inputs, a get_init_inputs or a forward returned.
        put: takes a tensor, returns its position in the list of tensors.
        depth: of the containers around it.
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        return Opaque(f"{kind.__name__} inside {depth} containers")
    # Tuples of every kind, torch's named results and shapes among them, are what their items are.
    if kind is list or isinstance(value, tuple):
        items = tuple(describe(item, put, depth + 1) for item in tuple.__iter__(tuple(value)))
        return Items("list" if kind is list else "tuple", items)
    if kind in (dict, OrderedDict) and all(type(key) is str for key in value):
        # By key: equal dicts have equal trees, and their tensors the same places in the list.
        return Entries(tuple((key, describe(value[key], put, depth + 1)) for key in sorted(value)))
    return _describe_leaf(value, put)


def _describe_leaf(value: Any, put: Callable[[torch.Tensor], int]) -> Node:
    import torch

    kind = type(value)
    node: Node = Opaque(f"{kind.__module__}.{kind.__qualname__}")
    # A subclass may compute when looked at: only the class itself has bytes that are its value.
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        # A zero tensor has a shape and no memory.
        strided = value.layout is torch.strided and not value._is_zerotensor()  # noqa: SLF001
        plain = strided and not value.is_complex()
        node = TensorLeaf(put(value)) if plain else Opaque(f"{value.layout} {value.dtype} tensor")
    elif value is None or kind in (bool, int, str):
        node = Scalar(value)
    elif kind is float:
        node = Scalar(value) if math.isfinite(value) else SpecialFloat(repr(value))
    return node


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


def leaves(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """Yield every leaf with its path, such as `output[1]` or `output['mean']`."""
    if isinstance(node, Items):
        for position, item in enumerate(node.items):
            yield from leaves(item, f"{path}[{position}]")
    elif isinstance(node, Entries):
        for key, item in node.entries:
            yield from leaves(item, f"{path}[{key!r}]")
    else:
        yield path, node


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
