"""The record of a pool."""

from typing import Literal

from kernelgen.engines.stage import Kernel

POOLED = "pooled"
"""The outcome of a window in a pool's epilogue; no operand and no step has the name."""


class Pool(Kernel, frozen=True, kw_only=True, tag="pool"):
    """A window moves over the last dimensions.

    Attributes:
        kind: max or mean.
        kernel, stride, padding, dilation: one number for each of the last 1 to 3 dimensions.
        ceil_mode: the last window may hang over the end.
        count_padding: a mean divides by the window with its padding.
        divisor: what a mean divides by instead, 0 if nothing else.
        of: the step or operand that is gathered; the epilogue reads the outcome as `POOLED`.
    """

    kind: Literal["max", "mean"]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    count_padding: bool
    divisor: int
    of: str
