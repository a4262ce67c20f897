"""The record of a pool."""

from typing import Literal

import msgspec

from kernelgen.engines.stage import Kernel

POOLED = "pooled"
"""The outcome of a window in a pool's epilogue; no operand and no step has the name."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window.

    Attributes:
        of: the value that is gathered: of the graph, or in a stage a step or an operand.
        kind: max or mean.
        kernel, stride, padding, dilation: one number for each of the last 1 to 3 dimensions.
        ceil_mode: the last window may hang over the end.
        count_padding: a mean divides by the window with its padding.
        divisor: what a mean divides by instead, 0 if nothing else.
    """

    of: str
    kind: Literal["max", "mean"]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    count_padding: bool
    divisor: int


class Pool(Kernel, frozen=True, kw_only=True, tag="pool"):
    """A window moves over the last dimensions; the epilogue reads its outcome as `POOLED`."""

    window: Window
