"""What a template computes, as a record of what its kernels and the Python around them need."""

from typing import ClassVar, Literal

import msgspec

from kernelgen.planning.graph import TensorType

Statistics = Literal["moments", "rms", "l1", "l2", "softmax", "log_softmax"]
Affine = Literal["channel", "element", "none"]
Symbol = Literal["", "+", "-", "*"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an epilogue, element by element.

    Attributes:
        symbol, operand: `value <symbol>= operand`; both are empty for an activation.
        activation: `gelu`, `relu`, `sigmoid`, `silu` or `tanh`, or "".
    """

    symbol: Symbol = ""
    operand: str = ""
    activation: str = ""

    @property
    def function(self) -> str:
        """Return what an activation is called in C: `tanh` is taken, for double."""
        return "tanhf" if self.activation == "tanh" else self.activation


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """What the forms have in common.

    Attributes:
        inputs: forward's parameters, all of them float32 tensors.
        steps: of the epilogue; an operand is an input of the shape of the result.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...] = ()

    @property
    def activations(self) -> tuple[str, ...]:
        """Those of the steps, each once."""
        return tuple(dict.fromkeys(step.activation for step in self.steps if step.activation))

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs that the steps take, each once."""
        return tuple(dict.fromkeys(step.operand for step in self.steps if step.operand))


class SegmentNorm(_Form, frozen=True, kw_only=True):
    """`segment_norm`: statistics of each segment of the first input, then a map of its elements.

    Attributes:
        statistics: moments, mean and variance; rms, the root of the mean square; l1, the mean
            absolute value; l2, the root of the sum of squares; softmax; log_softmax.
        normalises: what a segment is. groups: of channels of a sample, as nn.GroupNorm has them;
            channels: of a sample, as nn.InstanceNorm1d, 2d or 3d without running statistics; rows:
            the trailing dimensions of an nn.LayerNorm or nn.RMSNorm, or the one that `dim` names.
        affine: `channel` or `element` if a weight for each of these follows.
        bias: whether a bias follows that weight.
        layer: attribute of Model that normalises, "" where a function of a dimension does.
        dim: along which l1, l2, softmax and log_softmax go; the others have a layer instead.
        spatial_rank: of an InstanceNorm's images; 0 for the others.
        segments: of the first input; any number of them is as fast.
        length: elements of a segment.
        inner: elements of a channel in a segment, if the affine map is by channel; else 0.
        channels: of a segment, likewise.
        groups: segments of a sample, likewise.
    """

    template: ClassVar[str] = "segment_norm"

    statistics: Statistics
    normalises: Literal["groups", "channels", "rows"]
    affine: Affine = "none"
    bias: bool = False
    layer: str = ""
    dim: int | None = None
    spatial_rank: int = 0
    segments: int
    length: int
    inner: int = 0
    channels: int = 0
    groups: int = 0


class LinearSegmentNorm(_Form, frozen=True, kw_only=True):
    """`linear_segment_norm`: nn.Linear of the first input, then each row normalised by its moments.

    Attributes:
        linear: attribute of Model that is the nn.Linear, which has a bias.
        layer: attribute of Model that normalises, an nn.InstanceNorm without weights.
        x, weight: types of the first input, (rows, depth), and of the weight, (columns, depth).
    """

    template: ClassVar[str] = "linear_segment_norm"

    linear: str
    layer: str
    x: TensorType
    weight: TensorType


class MatrixProduct(_Form, frozen=True, kw_only=True):
    """`matrix_product`: the product of two inputs, as torch.matmul's of two or more dimensions.

    Attributes:
        left, right: the inputs that are multiplied.
        transposed: which of them are, in their last two dimensions.
        a, b: types of the two with the dimension last that is summed over.
    """

    template: ClassVar[str] = "matrix_product"

    left: str
    right: str
    transposed: Literal["none", "left", "right", "both"] = "none"
    a: TensorType
    b: TensorType


Form = SegmentNorm | LinearSegmentNorm | MatrixProduct
