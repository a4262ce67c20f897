"""Access of a kernel to an operand: which element goes with element i of the stage's shape."""

from math import prod
from typing import Literal

import msgspec

from kernelgen.engines.naming import constants_of
from kernelgen.engines.stage import Operand
from kernelgen.engines.text.stage_text import C_TYPES, VALUE_TYPES

VECTOR = 4  # neighbours that are read at once
_MOST_IN_32_BITS = 2**32 - 1

Neighbours = Literal["vector", "one", "number", "none"]


class Reading(Operand, frozen=True, kw_only=True):
    """An operand as templates see it: the pattern of a number is `number`.

    Attributes:
        of: what stands before its name and its sizes in C, such as `a.`.
        inner, size: of an operand along some dimensions, element i / inner % size is that of i;
            of one across `size` times `inner` elements, i / (size * inner) * inner + i % inner.
            At the main shape.
        reading: how neighbours are read: as a vector, as one element for all, or not at once.
        first, last: the span of the pattern.
        element: the C expression that reads it in a kernel for every input.
        at: its index in a kernel for the main shape; "" of a number.
        inner_name, size_name: of these two as constants there.
        index_type: C type of these constants: an index is divided in 32 bits where they hold all
            of them, in a few instructions in place of tens.
    """

    c_type: str
    dtype: str
    of: str
    inner: int
    size: int
    reading: Neighbours
    first: int
    last: int
    element: str
    at: str
    inner_name: str
    size_name: str
    index_type: Literal["unsigned", "int64_t"]

    @property
    def value_type(self) -> str:
        """The C type of an element in a register: floats of 16 bits are computed with as float."""
        return VALUE_TYPES[self.dtype]

    @property
    def repeats(self) -> bool:
        """Whether several elements of the stage's shape go with one of its own."""
        return self.pattern in {"along", "across"}

    @property
    def held(self) -> bool:
        """Whether neighbours of the stage's shape share one of its own, for a while.

        Of the others that repeat, neighbours go with neighbours.
        """
        return self.pattern == "along" and not self.first < self.last == 0

    @property
    def run(self) -> str:
        """The C expression for how many neighbours share an element, or take neighbours of it."""
        inner, size = f"{self.of}{self.name}_inner", f"{self.of}{self.name}_size"
        if self.held:
            return f"{size} == 1 ? INT64_MAX : {inner}"
        return size if self.pattern == "along" else inner

    def declared_at(self, start: str) -> str:
        """Return the C declaration of what holds for a run from there on: an element or a place."""
        name = f"{self.of}{self.name}"
        at = index_of(self.pattern, f"{name}_inner", f"{name}_size", i=start)
        if self.held:
            return f"const {self.value_type} {self.name}_i = {name}[{at}];"
        return f"const int64_t {self.name}_at = {at} - {start};"

    @property
    def element_in_run(self) -> str:
        """The C expression that reads it there."""
        if self.held:
            return f"{self.name}_i"
        return f"{self.of}{self.name}[{self.name}_at + i]" if self.repeats else self.element


def reading_of(
    operand: Operand, shape: tuple[int, ...], of: str = "a.", *, in_32_bits: bool = False,
    width: int = VECTOR,
) -> Reading:  # fmt: skip
    """Return how an operand of a stage of that main shape is read; `of` is where kernels have it.

    With `in_32_bits`, the kernel for the main shape is used where 32 bits hold every index. Of
    neighbours, `width` are read at once.
    """
    narrow = in_32_bits and prod(shape) <= _MOST_IN_32_BITS
    index_type: Literal["unsigned", "int64_t"] = "unsigned" if narrow else "int64_t"
    pattern = "number" if operand.is_number else operand.pattern
    first, last = operand.span
    inner = prod(shape[len(shape) + last :])
    size = prod(shape[len(shape) + first : len(shape) + last])
    name = operand.name
    constants = constants_of(name)
    element = f"{of}{name}"
    if pattern != "number":
        element += f"[{index_of(pattern, f'{of}{name}_inner', f'{of}{name}_size')}]"
    return Reading(
        **msgspec.structs.asdict(operand) | {"pattern": pattern},
        c_type=C_TYPES[operand.type.dtype],
        dtype=operand.type.dtype,
        of=of,
        inner=inner,
        size=size,
        reading=_reading(pattern, inner, size, width),
        first=first,
        last=last,
        element=element,
        at="" if pattern == "number" else index_of(pattern, *constants, index_type),
        inner_name=constants[0],
        size_name=constants[1],
        index_type=index_type,
    )


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is no less than a number above 0."""
    return 1 << (least - 1).bit_length()


def index_of(pattern: str, inner: str, size: str, index_type: str = "int64_t", i: str = "i") -> str:
    """Return the C expression for the index of an operand that goes with element i, an int64_t.

    It is computed in the index type, which inner and size are of.
    """
    of = i if index_type == "int64_t" else f"{index_type}({i})"
    match pattern:
        case "along":
            return f"{of} / {inner} % {size}"
        case "across":
            return f"{of} / ({size} * {inner}) * {inner} + {of} % {inner}"
        case _:
            return i


def _reading(pattern: str, inner: int, size: int, width: int) -> Neighbours:
    match pattern:
        case "number":
            return "number"
        case "each":
            return "vector"
        case "across":
            return "vector" if inner % width == 0 else "none"
        case _ if inner % width == 0 or size == 1:
            return "one"
        case _:
            return "vector" if inner == 1 and size % width == 0 else "none"
