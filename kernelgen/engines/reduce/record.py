"""The record of a reduction."""

from kernelgen.engines.stage import Kernel, Operand


class Reduce(Kernel, frozen=True, kw_only=True, tag="reduce"):
    """Elements are gathered along some dimensions.

    Attributes:
        dims: that are reduced, ascending, counted from the front of `shape`.
        keepdim: they stay as ones in the results.
    """

    dims: tuple[int, ...]
    keepdim: bool

    @property
    def spread(self) -> tuple[Operand, ...]:
        """Operands of which the kernel's Python needs no other shape than where they repeat."""
        one = self.keepdim and len(self.shape) == len(self.dims) + 1
        return self.beside if one else super().spread

    @property
    def replaceable(self) -> tuple[Operand, ...]:
        """Operands of the epilogue that have an element for each result."""
        return tuple(o for o in self.beside if o.pattern == "each" and not o.is_number)

    @property
    def extent_in_words(self) -> str:
        """Dimensions that are gathered: all of any rank, or some of one rank."""
        rank = len(self.shape)
        return "all" if len(self.dims) == rank else f"{self.dims} of {rank}"
