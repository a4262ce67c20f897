"""How far the pinned fp32 reference is from the exact result, slice by slice of an output.

The reference's own error may widen the bound (correctness.py). One number for a whole output would
let its largest rows excuse everything in its small ones, so the error is taken by slices along the
first dimension: as many rows as make at least 4096 elements, so that a slice's largest error is a
steady statistic and not one element's luck.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernelgen.grading.block import Block

_LEAST_ELEMENTS = 4096


class ErrorOfReference:
    """The fp32 reference's errors on one output, gathered block by block.

    Args:
        shape: of the output.
        device: of its tensors.
        tolerance, absolute: of the bound that the reference may miss.

    Attributes:
        largest: over all elements.
    """

    def __init__(
        self, shape: tuple[int, ...], device: torch.device, tolerance: float, absolute: float
    ) -> None:
        import torch

        total = math.prod(shape)
        row = math.prod(shape[1:]) if shape else 1
        rows = -(-_LEAST_ELEMENTS // max(1, row))
        self._slice = max(1, rows * row)
        # What is left over belongs to the last slice, which is then longer, not shorter.
        count = max(1, total // self._slice)
        self._tolerance, self._absolute = tolerance, absolute
        self._errors = torch.zeros(count, dtype=torch.float64, device=device)
        self._missed = torch.zeros(count, dtype=torch.float64, device=device)
        self.largest = 0.0

    def add(self, block: Block) -> None:
        """Take in a block; only its `ref` and `exact` count."""
        if block.ref.numel() == 0 or not block.ref.is_floating_point():
            return
        exact = block.exact.double()
        # Where either is inf or NaN, that value itself is expected, and there is no error.
        error = (block.ref.double() - exact).abs_().nan_to_num_(nan=0.0, posinf=0.0)
        excess = error - exact.abs().mul_(self._tolerance).add_(self._absolute)
        where = self._slices(block.start, error.numel())
        self._errors.scatter_reduce_(0, where, error, "amax")
        self._missed.scatter_reduce_(0, where, (excess > 0.0).double(), "amax")
        self.largest = max(self.largest, float(error.max()))

    def slack(self) -> Slack | None:
        """Return what to allow at least, or None if the reference kept its bound everywhere."""
        if not bool(self._missed.any()):
            return None
        return Slack(2.0 * self._errors * self._missed, self)

    def _slices(self, start: int, count: int) -> torch.Tensor:
        import torch

        flat = torch.arange(start, start + count, device=self._errors.device)
        return flat.div_(self._slice, rounding_mode="floor").clamp_(max=len(self._errors) - 1)


class Slack:
    """The least bound of each element: twice the reference's largest error in its slice."""

    def __init__(self, least: torch.Tensor, error: ErrorOfReference) -> None:
        self._least, self._error = least, error

    def at(self, start: int, count: int) -> torch.Tensor:
        """Return the least bounds of `count` elements from a flat index on, in float64."""
        return self._least[self._error._slices(start, count)]  # noqa: SLF001 (its other half)
