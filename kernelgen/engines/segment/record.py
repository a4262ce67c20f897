"""The record of a segment."""

from math import prod
from typing import Literal

import msgspec

from kernelgen.engines.stage import Kernel, Operand, Step, StepValue
from kernelgen.graph.graph import Reference

Way = Literal["held", "registers", "cache", "rings", "columns", "slices"]
"""How the kernels of a segment hold it: in the registers of threads, of a block, in a block's L1
cache, in the shared memory of all blocks, by rings of slots or by fixed columns; or not at all."""

_NUMBERS = {"groups": "groups: int", "rows": "sizes: tuple[int, ...]"}


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a layer's, or along a dimension: a run of memory in a tensor of any rank.

    Attributes:
        kind: groups of channels of a sample; channels of a sample, each an image of `by`
            dimensions; rows, the last sizes, which are `by`; or dim, along the dimension `by`.
        by: the number of groups or the like as the plan's, or the path of the layer's attribute
            that has it. A last size may be one that forward reads.
        weights: names of the operands of the layer's, one for each channel or element.
        length: elements of a segment of the main shape.
    """

    kind: Literal["groups", "channels", "rows", "dim"]
    by: int | str | tuple[int | Reference, ...]
    weights: tuple[str, ...]
    length: int


class Segment(Kernel, frozen=True, kw_only=True, tag="segment"):
    """A reduction along neighbouring dimensions, and a map of the same elements with its outcome.

    Attributes:
        dims: that are reduced, neighbours, ascending, counted from the front of `shape`.
        kept: names of the operands that both the reduction and the map read element by element.
        held: the step that is both gathered and mapped, in place of the kept operands; or "".
        outcome: what the map reads of accumulators, and of the epilogue, which reads nothing else:
            its name in `after` -> accumulator or epilogue's step.
        after: steps of the map.
        extent: what a segment is, where it is no fixed dimensions: of any rank.
        way: how its kernels hold it.
    """

    dims: tuple[int, ...]
    kept: tuple[str, ...]
    held: str
    outcome: dict[str, StepValue]
    after: tuple[Step, ...]
    extent: Extent | None = None
    way: Way = "held"

    @property
    def length(self) -> int:
        """Elements of a segment of the main shape."""
        if self.extent is not None:
            return self.extent.length
        return prod(self.shape[d] for d in self.dims)

    @property
    def inner(self) -> int:
        """How far its elements are apart in memory."""
        return 1 if self.extent is not None else prod(self.shape[self.dims[-1] + 1 :])

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Steps, whenever they are done."""
        return (*self.steps, *self.epilogue, *self.after)

    @property
    def roots(self) -> tuple[StepValue, ...]:
        """Values that are gathered or written."""
        return (*(a.of for a in self.accumulators), self.result.of)

    @property
    def mapped_again(self) -> tuple[Operand, ...]:
        """Operands that the map reads as what is gathered does."""
        return tuple(o for o in self.operands if o.name in self.kept)

    @property
    def handed_on(self) -> tuple[str, ...]:
        """The result that has all elements; others have one for each segment."""
        return (self.result.value,)

    def followed_by(self, operands: tuple[Operand, ...], steps: tuple[Step, ...]) -> Kernel:
        """Return a segment whose map goes on with steps, which read further operands."""
        operands, after = (*self.operands, *operands), (*self.after, *steps)
        return msgspec.structs.replace(self, operands=operands, after=after)

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of its Python function beside operands -> what a call gives them."""
        extent = self.extent
        if extent is None or extent.kind not in _NUMBERS:
            return {}
        by = "{self." + extent.by + "}" if isinstance(extent.by, str) else repr(extent.by)
        if isinstance(extent.by, tuple) and any(isinstance(one, Reference) for one in extent.by):
            # Whatever forward reads them of, torch takes none but the input's own.
            by = "{" + self.operands[0].value + "}.shape[" + f"{-len(extent.by)}:]"
        return {_NUMBERS[extent.kind]: by}
