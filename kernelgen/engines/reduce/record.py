"""The record of a reduction."""

from kernelgen.engines.stage import Kernel


class Reduce(Kernel, frozen=True, kw_only=True, tag="reduce"):
    """Elements are gathered along some dimensions.

    Attributes:
        dims: that are reduced, ascending, counted from the front of `shape`.
        keepdim: they stay as ones in the results.
    """

    dims: tuple[int, ...]
    keepdim: bool
