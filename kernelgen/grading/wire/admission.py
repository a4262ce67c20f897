"""What a candidate's process sends, beyond its type: as an honest host shapes it, or garbage.

A record of the right type may still be made to fail whoever handles it next: nested until a stack
ends, or with numbers that no machine word holds. Here that is found out where it is known who has
sent it, before it goes on to the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelgen.grading.wire.channel import ChannelGarbage
from kernelgen.grading.wire.messages import BatchRan, Placed, Tensors
from kernelgen.grading.wire.tree import MAX_DEPTH, Entries, Items, Node, TensorSpec

_MAX_WORD = (1 << 63) - 1


def require_plain(record: Any) -> None:
    """Refuse a candidate's record that no honest host makes.

    Args:
        record: of any type of `messages.FromCandidate`.

    Raises:
        ChannelGarbage: a tree nested deeper than `tree.describe` nests, or a size outside 64
            bits.
    """
    for tensors in _tensors_in(record):
        _require_plain_tree(tensors.tree)
        for spec in tensors.specs:
            _require_words(spec)


def _tensors_in(record: Any) -> Iterator[Tensors]:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, Tensors):
            yield value
        elif isinstance(value, BatchRan):
            yield from _tensors_in(value)
        elif isinstance(value, tuple):
            yield from (one.tensors for one in value if isinstance(one, Placed))


def _require_plain_tree(tree: Node) -> None:
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
    raise ChannelGarbage("a value nested too deeply")


def _require_words(spec: TensorSpec) -> None:
    numbers = (*spec.shape, *spec.stride, spec.offset, spec.nbytes)
    if any(not -_MAX_WORD <= number <= _MAX_WORD for number in numbers):
        raise ChannelGarbage("a tensor with a size that is no 64-bit number")
