"""The norms that a template computes, as a record of what its kernels and Python need."""

from typing import ClassVar, Literal

import msgspec

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


class SegmentNorm(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of each segment of the first input, then a map of its elements.

    Attributes:
        inputs: forward's parameters, all of them float32 tensors.
        steps: of the epilogue; an operand is an input of the shape of the result.
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

    inputs: tuple[str, ...]
    steps: tuple[Step, ...] = ()
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

    @property
    def activations(self) -> tuple[str, ...]:
        """Those of the steps, each once."""
        return tuple(dict.fromkeys(step.activation for step in self.steps if step.activation))

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs that the steps take, each once."""
        return tuple(dict.fromkeys(step.operand for step in self.steps if step.operand))
