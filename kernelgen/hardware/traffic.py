"""The bytes that a computation has to move however it is done."""

from collections.abc import Iterable
from math import prod

import msgspec


class TensorSize(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of a tensor in memory: its shape, and the bytes of one element."""

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements, each counted once."""
        return prod(self.shape) * self.element_bytes


def minimal_bytes(read: Iterable[TensorSize], written: Iterable[TensorSize]) -> int:
    """Return the bytes of reading every input and parameter once and writing every output once.

    No kernel that starts with cold caches can move less, so this over a device's bandwidth bounds
    the time from below. A computation that reuses its operands, such as a matrix product, may be
    bounded more tightly by its arithmetic.
    """
    return sum(tensor.nbytes for tensor in (*read, *written))
