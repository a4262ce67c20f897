"""How far the pinned fp32 reference is from the exact result, slice by slice of an output.

The reference's own error may widen the bound (correctness.py) to twice its maximum: where twice the
error of some element misses the bound, since an honest kernel that sums in another order may err
as much there by chance, though the reference did not. That number alone would let an output's
largest rows excuse everything in its small ones, so it is held to four times the maximum in the
element's own slice: as many rows of the first dimension as make at least 4096 elements. Four, not
two: among thousands of slices and tens of calls there is always one in which the reference happened
to round luckily, and an honest kernel did not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernelgen.grading.correctness.block import Block

_LEAST_ELEMENTS = 4096
_OF_OUTPUT = 2.0
_OF_SLICE = 4.0


class ErrorOfReference:
    """The fp32 reference's errors on one output, gathered block by block.

    Args:
        shape: of the output.
        device: of its tensors.
        tolerance, absolute: of the bound that twice the reference's error may miss.

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
        self._missed = False
        self.largest = 0.0

    def add(self, block: Block) -> None:
        """Take in a block; only its `ref` and `exact` count."""
        if block.ref.numel() == 0 or not block.ref.is_floating_point():
            return
        exact = block.exact.double()
        # Where either is inf or NaN, that value itself is expected, and there is no error.
        error = (block.ref.double() - exact).abs_().nan_to_num_(nan=0.0, posinf=0.0)
        excess = _OF_OUTPUT * error - exact.abs().mul_(self._tolerance).add_(self._absolute)
        self._take_maxima(block.start, error)
        self._missed = self._missed or bool((excess > 0.0).any())
        self.largest = max(self.largest, float(error.max()))

    def _take_maxima(self, start: int, error: torch.Tensor) -> None:
        """Raise each slice's maximum by a run of errors: a slice's rest, whole ones, a rest."""
        last = len(self._errors) - 1
        first = min(start // self._slice, last)
        head = len(error) if first == last else min(len(error), (first + 1) * self._slice - start)
        whole = max(0, min((len(error) - head) // self._slice, last - first - 1))
        middle = error[head : head + whole * self._slice].view(whole, self._slice)
        tail = error[head + whole * self._slice :]
        self._raise(first, error[:head].amax()[None])
        if whole:
            self._raise(first + 1, middle.amax(1))
        if len(tail):
            self._raise(first + 1 + whole, tail.amax()[None])

    def _raise(self, first: int, maxima: torch.Tensor) -> None:
        part = self._errors[first : first + len(maxima)]
        part.copy_(part.maximum(maxima))

    def slack(self) -> Slack | None:
        """Return what to allow at least, or None if twice its error keeps the bound everywhere."""
        if not self._missed:
            return None
        least = (_OF_SLICE * self._errors).clamp_(max=_OF_OUTPUT * self.largest)
        return Slack(least, self)

    def _slices(self, start: int, count: int) -> torch.Tensor:
        import torch

        flat = torch.arange(start, start + count, device=self._errors.device)
        return flat.div_(self._slice, rounding_mode="floor").clamp_(max=len(self._errors) - 1)


class Slack:
    """The least bound of each element."""

    def __init__(self, least: torch.Tensor, error: ErrorOfReference) -> None:
        self._least, self._error = least, error

    def at(self, start: int, count: int) -> torch.Tensor:
        """Return the least bounds of `count` elements from a flat index on, in float64."""
        return self._least[self._error._slices(start, count)]  # noqa: SLF001 (its other half)
