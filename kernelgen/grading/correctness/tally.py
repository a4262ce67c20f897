"""Counting, block by block, how many elements of an output are wrong and which is the worst."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kernelgen.grading.correctness.block import Block
    from kernelgen.grading.correctness.slack import Slack


class Worst(msgspec.Struct, frozen=True):
    """The element whose error is the largest multiple of its bound."""

    severity: float
    flat: int
    got: float
    expected: float
    bound: float


class Tally:
    """What the comparison of one output has found so far.

    Args:
        shape: of the output.
        tolerance: relative.
        absolute: atol_eff, see correctness.py.
        slack: the least bound of each element, or None.
    """

    def __init__(
        self, shape: tuple[int, ...], tolerance: float, absolute: float, slack: Slack | None
    ) -> None:
        self.shape, self._tolerance = shape, tolerance
        self._absolute, self._slack = absolute, slack
        self.elements = self.wrong = self.non_finite = 0
        self.max_err = 0.0
        self.all_zero = True
        self.first_wrong: int | None = None
        self.worst: Worst | None = None

    def add(self, block: Block) -> None:
        """Take in a block."""
        count = block.out.numel()
        self.elements += count
        if count == 0:
            return
        if not block.out.is_floating_point():
            self._add_integers(block)
        elif not self._add_if_all_agree(block):
            self._add_slowly(block)

    def _add_if_all_agree(self, block: Block) -> bool:
        """The usual case, in as few passes over memory as it takes."""
        import torch

        error = block.exact.sub(block.out).abs_()
        largest = float(error.max())  # NaN if any is, and then nothing below is true
        margin = block.exact.abs().mul_(self._tolerance).add_(self._absolute)
        if self._slack is not None:
            margin = torch.maximum(margin.double(), self._slack.at(block.start, margin.numel()))
        if not (math.isfinite(largest) and float(margin.sub_(error).min()) >= 0.0):
            return False
        self.max_err = max(self.max_err, largest)
        self.all_zero = False
        return True

    def _add_slowly(self, block: Block) -> None:
        """Count and locate. Where the fp32 reference is inf or NaN, that very value is expected."""
        import torch

        out, exact, ref = block.out.double(), block.exact.double(), block.ref.double()
        special = ~torch.isfinite(ref) | ~torch.isfinite(exact)
        same = (out == ref) | (torch.isnan(out) & torch.isnan(ref))
        error = (out - exact).abs()
        bound = self._absolute + self._tolerance * exact.abs()
        if self._slack is not None:
            bound = torch.maximum(bound, self._slack.at(block.start, bound.numel()))
        wrong = ~torch.where(special, same, error <= bound)
        self.non_finite += int((~torch.isfinite(out) & ~special).sum())
        self.wrong += int(wrong.sum())
        self.all_zero = self.all_zero and not bool(out.any())
        ordinary = torch.where(special, 0.0, error).nan_to_num(nan=math.inf, posinf=math.inf)
        self.max_err = max(self.max_err, float(ordinary.max()))
        if bool(wrong.any()):
            self._note_first(block.start + int(wrong.int().argmax()))
            excess = torch.where(
                wrong, (error / bound).nan_to_num(nan=math.inf, posinf=math.inf), -1.0
            )
            at = int(excess.argmax())
            values = (float(out[at]), float(exact[at]), float(bound[at]))
            self._note_worst(Worst(float(excess[at]), block.start + at, *values))

    def _add_integers(self, block: Block) -> None:
        wrong = block.out != block.ref
        self.all_zero = self.all_zero and not bool(block.out.any())
        count = int(wrong.sum())
        if not count:
            return
        self.wrong += count
        at = int(wrong.int().argmax())
        self._note_first(block.start + at)
        difference = (block.out.double() - block.ref.double()).abs()
        self.max_err = max(self.max_err, float(difference.max()))
        got, expected = float(block.out[at]), float(block.ref[at])
        self._note_worst(Worst(1.0, block.start + at, got, expected, 0.0))

    def _note_first(self, flat: int) -> None:
        if self.first_wrong is None:
            self.first_wrong = flat

    def _note_worst(self, worst: Worst) -> None:
        if self.worst is None or worst.severity > self.worst.severity:
            self.worst = worst

    def index(self, flat: int) -> tuple[int, ...]:
        """Turn a flat index into one number a dimension."""
        position = []
        for size in reversed(self.shape):
            position.append(flat % size)
            flat //= size
        return tuple(reversed(position))
