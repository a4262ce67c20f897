"""The record of a convolution."""

from collections.abc import Collection, Mapping
from math import prod
from typing import Literal

import msgspec

from kernelgen.engines.operators import NARROW
from kernelgen.engines.stage import Kernel, Operand, Step, StepValue
from kernelgen.graph.graph import Argument, TensorType, references

CONVOLVED = "convolved"
"""The sum of products in a convolution's epilogue; no operand and no step has the name."""

MEAN, VARIANCE, COUNT = MOMENTS = ("means", "variances", "pixel_counts")
"""Outcomes of an image's pixels of a filter: of what each becomes, and their number."""

CONVOLUTIONS = {
    f"conv{transposed}{dims}d.{overload}": dims
    for dims in (1, 2, 3)
    for transposed, overload in (
        ("", "default"),
        ("", "padding"),
        ("_transpose", "default" if dims == 1 else "input"),
    )
}
"""torch's operators -> the dimensions over which their filters move."""

ConvolutionWay = Literal["tensor", "few", "direct"]
Three = tuple[int, int, int]


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a convolution at its main shape: depth, height and width, 1 of a dimension it lacks.

    Attributes:
        images: of the batch.
        channels, filters: of a group: of the input, and of the result.
        input, kernel, output: sizes of an image, a filter and a result.
        stride, padding, dilation: as torch has them.
        transposed: each input is spread over results, which lie a stride apart.
        dtype: of the input and the filters.
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
    dtype: str = "float32"

    @property
    def is_narrow(self) -> bool:
        """Whether tensor cores multiply values as they are, and not their halves."""
        return self.dtype in NARROW

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        places = self.input if self.transposed else self.output
        taps = prod(self.kernel) * self.channels * self.filters * self.groups
        return 2 * self.images * prod(places) * taps


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """A gathering of a convolution's results: in windows, or of all channels of a pixel.

    Channels are gathered into the stage's accumulators.

    Attributes:
        of: the epilogue's value that is gathered.
        kind: of a window, max or mean; "" where channels are gathered.
        window: its sizes, each of which is its stride too.
        steps: from what is gathered to the result, or to `outcome`.
        outcome: names in `after` of what is known of a pixel -> accumulators or steps.
        held: what `after` calls the gathered value; "" if there is one result for all channels.
        after: from the gathered value of a channel, and from outcomes, to its result.
        late: names of what is read for a result, and not for what is gathered.
    """

    of: StepValue
    kind: Literal["max", "mean", ""] = ""
    window: Three = (1, 1, 1)
    steps: tuple[Step, ...] = ()
    outcome: dict[str, StepValue] = {}
    held: str = ""
    after: tuple[Step, ...] = ()
    late: tuple[str, ...] = ()


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """A gathering of all pixels of an image, for each filter: results are of MOMENTS.

    Attributes:
        steps: from the epilogue's values to what is gathered.
        of: the value that is gathered.
    """

    steps: tuple[Step, ...]
    of: StepValue


class Convolution(Kernel, frozen=True, kw_only=True, tag="convolution"):
    """Filters move over the last dimensions of an input.

    The epilogue reads the sum of their products as `CONVOLVED`. Moments are the last results.

    Attributes:
        aten: what convolves in torch: `conv2d`.
        dims: over which filters move.
        operands: the input, of shape ([images,] channels, sizes...), and the filters.
        geometry: at the main shape.
        extra: torch's output_padding.
        way: how its kernels work.
        tail: what becomes of the epilogue's values; None if they are the results.
        moments: what is gathered beside, or alone; None if nothing is.
    """

    aten: str
    dims: int
    geometry: Geometry
    extra: Three
    way: ConvolutionWay
    tail: Tail | None = None
    moments: Moments | None = None

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Steps, whenever they are done."""
        tail = () if self.tail is None else (*self.tail.steps, *self.tail.after)
        return (*self.epilogue, *tail, *(() if self.moments is None else self.moments.steps))

    @property
    def handed_on(self) -> tuple[str, ...]:
        """Results that a stage fused with this one takes."""
        return tuple(result.value for result in self.results if result.of not in MOMENTS)

    @property
    def mapped(self) -> StepValue:
        """The value that the epilogue makes of an element."""
        if not self.handed_on and self.moments is not None:
            return self.moments.of
        return self.result.of if self.tail is None else self.tail.of

    @property
    def window(self) -> Three:
        """Results of the convolution that become one."""
        return (1, 1, 1) if self.tail is None else self.tail.window


def is_of_channels(operand: Operand, stage: Convolution) -> bool:
    """Return whether an operand of the epilogue is one number, or has one for each filter."""
    spans = ((0, 0), (-stage.dims - 1, -stage.dims))
    return operand.is_number or (operand.pattern == "along" and operand.span in spans)


def three(given: object, dims: int, missing: int) -> Three:
    """Return numbers of depth, height and width; one number is that of all dimensions."""
    numbers = given if isinstance(given, tuple) else (given,)
    whole = [int(number) for number in numbers]
    whole = whole * dims if len(whole) == 1 else whole
    three = [missing] * (3 - dims) + whole
    return (three[0], three[1], three[2])


def geometry_of(
    aten: str,
    given: Mapping[str, Argument],
    out: TensorType,
    types: Mapping[str, TensorType],
    dtypes: Collection[str] = ("float32",),
) -> Geometry | None:
    """Return the sizes of a convolution of torch's; None if it is of other types."""
    dims = CONVOLUTIONS[aten]
    # Of a number that is read when the file runs, no reference is of such a type.
    read = [types.get(name) for name in references(*given.values())]
    if out.dtype not in dtypes or any(
        one is None or one.dtype != out.dtype or 0 in one.shape for one in (*read, out)
    ):
        return None
    of, weight, *_ = filter(None, read)
    transposed = "transpose" in aten
    groups = given.get("groups", 1)
    assert isinstance(groups, int)
    kernel = three(weight.shape[-dims:], dims, 1)
    dilation = three(given.get("dilation", 1), dims, 1)
    padding = given.get("padding", 0)
    if padding == "same":
        around = [(size - 1) * far for size, far in zip(kernel, dilation, strict=True)]
        if any(one % 2 for one in around):
            return None  # one more on one side
        padding = tuple(one // 2 for one in around[-dims:])
    elif padding == "valid":
        padding = 0
    channels, filters = weight.shape[:2] if transposed else (weight.shape[1], weight.shape[0])
    return Geometry(
        images=of.shape[0] if len(of.shape) > dims + 1 else 1,
        groups=groups,
        channels=channels // groups if transposed else channels,
        filters=filters if transposed else filters // groups,
        input=three(of.shape[-dims:], dims, 1),
        kernel=kernel,
        output=three(out.shape[-dims:], dims, 1),
        stride=three(given.get("stride", 1), dims, 1),
        padding=three(padding, dims, 0),
        dilation=dilation,
        transposed=transposed,
        dtype=out.dtype,
    )
