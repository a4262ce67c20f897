"""The record of a convolution."""

from math import prod
from typing import Literal

import msgspec

from kernelgen.engines.stage import Kernel

CONVOLVED = "convolved"
"""The sum of products in a convolution's epilogue; no operand and no step has the name."""

ConvolutionWay = Literal["tensor", "direct"]
Three = tuple[int, int, int]


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a convolution at its main shape: depth, height and width, 1 of a dimension it lacks.

    Attributes:
        images: of the batch.
        channels, filters: of a group: of the input, and of the result.
        input, kernel, output: sizes of an image, a filter and a result.
        stride, padding, dilation: as torch has them.
        transposed: each input is spread over results, which lie a stride apart.
    """

    images: int
    groups: int
    channels: int
    filters: int
    input: Three
    kernel: Three
    output: Three
    stride: Three
    padding: Three
    dilation: Three
    transposed: bool

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        places = self.input if self.transposed else self.output
        taps = prod(self.kernel) * self.channels * self.filters * self.groups
        return 2 * self.images * prod(places) * taps


class Convolution(Kernel, frozen=True, kw_only=True, tag="convolution"):
    """Filters move over the last dimensions of an input.

    The epilogue reads the sum of their products as `CONVOLVED`.

    Attributes:
        aten: what convolves in torch: `conv2d`.
        dims: over which filters move.
        operands: the input, of shape ([images,] channels, sizes...), and the filters.
        geometry: at the main shape.
        extra: torch's output_padding.
        biased: whether what the epilogue reads first is torch's bias, of one dimension.
        way: how its kernels work.
    """

    aten: str
    dims: int
    geometry: Geometry
    extra: Three
    biased: bool
    way: ConvolutionWay
