"""The elements of one output: the bound of each, the reference's errors, and how many are wrong.

Outputs come in blocks. The fp32 reference's own error may widen the bound (compare.py) to twice its
maximum: where twice the error of some element misses the bound, since an honest kernel that sums in
another order may err as much there by chance, though the reference did not. That number alone would
let an output's largest rows excuse everything in its small ones, so it is held to four times the
maximum in the element's own slice: as many rows of the first dimension as make at least 4096
elements. Four, not two: among thousands of slices and tens of calls there is always one in which
the reference happened to round luckily, and an honest kernel did not.
"""

from __future__ import annotations

import math

import msgspec
import torch

from kernelgen.grading.verdict import WorstElement

# Elements compared at a time: temporaries of 0.5 GB in float64.
BLOCK_ELEMENTS = 1 << 26
_LEAST_ELEMENTS = 4096
# Of 16 bits. One number that the reference rounds, such as a row's mean, may be all of a row's
# error: it says no more than one draw does.
_LEAST_ROWS = 16
_OF_OUTPUT = 2.0
_OF_SLICE = 4.0
# Significant bits of floats of 16 bits.
_DIGITS = {torch.bfloat16: 8, torch.float16: 11}
# The maximum of fewer errors says little of what another order of summation may err by.
_FEW_ERRORS = 64
# Errors are counted by powers of 2, from half a bound on. A candidate may have so many times those
# that the reference has at most on the inputs nearby; of rare ones, as many as on all of them.
_SIZES, _TIMES_AS_MANY, _RARE = 64, 1.5, 0.01
# A gradient that is smaller than this share of its errors is 0 but for rounding; how far from 0
# depends on the order of summation more than on anything else.
_NOTHING, _OF_NOTHING = 2.0**-16, 16.0


def signal(tensor: torch.Tensor) -> float:
    """Return the root mean square of a tensor's finite elements, in float64."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0.0
    flat = tensor.contiguous().view(-1)
    # One pass over memory where all is finite, which is the usual case. In blocks: it converts.
    norms = [
        torch.linalg.vector_norm(block, dtype=torch.float64)
        for block in torch.split(flat, BLOCK_ELEMENTS)
    ]
    whole = float(torch.linalg.vector_norm(torch.stack(norms)))
    if math.isfinite(whole):
        return whole / math.sqrt(flat.numel())
    total, count = 0.0, 0
    for block in torch.split(flat, BLOCK_ELEMENTS):
        wide = block.double()
        finite = torch.isfinite(wide)
        total += float(torch.where(finite, wide, 0.0).square_().sum())
        count += int(finite.sum())
    return math.sqrt(total / count) if count else 0.0


class Block(msgspec.Struct, frozen=True):
    """A run of elements of one output from flat index `start` on, as flat tensors of one length."""

    start: int
    out: torch.Tensor
    exact: torch.Tensor
    ref: torch.Tensor


class Slices(msgspec.Struct, frozen=True):
    """A float64 value for each slice of `length` elements; the last one may be longer."""

    length: int
    values: torch.Tensor

    @staticmethod
    def zeros(shape: tuple[int, ...], device: torch.device, least_rows: int = 1) -> Slices:
        """Return one 0 for each slice of an output of this shape, of so many rows at least."""
        row = max(1, math.prod(shape[1:]))
        length = max(least_rows, -(-_LEAST_ELEMENTS // row)) * row
        # The remainder belongs to the last slice, which is then longer, not shorter.
        count = max(1, math.prod(shape) // length)
        return Slices(length, torch.zeros(count, dtype=torch.float64, device=device))

    def at(self, flat: torch.Tensor | range) -> torch.Tensor:
        """Return the values for the elements of these flat indices."""
        last = len(self.values) - 1
        if isinstance(flat, range):
            flat = torch.arange(flat.start, flat.stop, device=self.values.device)
        return self.values[flat.div(self.length, rounding_mode="floor").clamp_(max=last)]

    def raise_to(self, start: int, found: torch.Tensor) -> None:
        """Raise each slice's value to the maximum of a run: a slice's rest, whole ones, a rest."""
        last = len(self.values) - 1
        first = min(start // self.length, last)
        head = len(found) if first == last else min(len(found), (first + 1) * self.length - start)
        whole = max(0, min((len(found) - head) // self.length, last - first - 1))
        middle = found[head : head + whole * self.length].view(whole, self.length)
        tail = found[head + whole * self.length :]
        self._raise(first, found[:head].amax()[None])
        if whole:
            self._raise(first + 1, middle.amax(1))
        if len(tail):
            self._raise(first + 1 + whole, tail.amax()[None])

    def _raise(self, first: int, maxima: torch.Tensor) -> None:
        part = self.values[first : first + len(maxima)]
        part.copy_(part.maximum(maxima))


class Bound(msgspec.Struct, frozen=True):
    """How far the elements of one output may be off.

    Attributes:
        tolerance: relative.
        absolute: atol_eff, see compare.py.
        least: the least bound of the elements of each slice, or None.
        dtype: of the output. What is within the bound may be rounded to one of 16 bits.
        roundings: to that dtype, between the results that are compared.
        of_gradient: the output is one. It jumps where something passes a point, such as a ReLU's 0,
            to which side being a matter of rounding. Before a norm, a bias has one of 0.
    """

    tolerance: float
    absolute: float
    least: Slices | None = None
    dtype: torch.dtype = torch.float32
    roundings: int = 1
    of_gradient: bool = False

    def of(self, start: int, exact: torch.Tensor) -> torch.Tensor:
        """Return the bound of each element of a run that begins at a flat index."""
        return self.at(range(start, start + exact.numel()), exact)

    def at(self, flat: torch.Tensor | range, exact: torch.Tensor) -> torch.Tensor:
        """Return the bound of each of the elements of these flat indices."""
        bound = exact.abs().mul_(self.tolerance).add_(self.absolute)
        if self.least is not None:
            bound = torch.maximum(bound.double(), self.least.at(flat))
        return bound + self.roundings * self.rounding(exact.abs() + bound) if self.rounds else bound

    @property
    def rounds(self) -> bool:
        """Whether results are rounded to fewer bits than the bound is for."""
        return self.dtype in _DIGITS

    def rounding(self, size: torch.Tensor) -> torch.Tensor:
        """Return by how much numbers of a size change if they are rounded to the dtype."""
        # Of 0, which has no exponent, frexp says that it is 0.
        least = torch.finfo(self.dtype).smallest_normal
        exponent = torch.frexp(size.double().clamp(min=least)).exponent
        return torch.ldexp(torch.ones_like(size).double(), exponent - (_DIGITS[self.dtype] + 1))


def _counts(error: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Return how many errors there are in all, from half the bound on, from the bound on, ..."""
    exponents = torch.frexp((error / bound).nan_to_num_().clamp_(min=0.25)).exponent + 1
    counts = exponents.clamp_(0, _SIZES - 1).bincount(minlength=_SIZES).cpu()
    return counts.flip(0).cumsum(0).flip(0)


class ErrorOfReference:
    """The fp32 reference's errors on one output, gathered block by block.

    Args:
        bound: that twice the reference's error may miss.

    Attributes:
        largest: over all elements.
        beyond: the same without what rounding to the output's own dtype explains.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device, bound: Bound) -> None:
        self._bound, self._numel = bound, math.prod(shape)
        self._counts: list[torch.Tensor] = []
        self._size = self._sum = 0.0
        self._unrounded = msgspec.structs.replace(bound, roundings=0)
        self._maxima = Slices.zeros(shape, device, _LEAST_ROWS if bound.rounds else 1)
        self._missed = False
        self._rounds, self._errors = False, 0
        self.largest = self.beyond = 0.0

    def add(self, block: Block) -> None:
        """Take in a block; only its `ref` and `exact` count."""
        if block.ref.numel() == 0 or not block.ref.is_floating_point():
            return
        self._rounds = True
        exact = block.exact.double()
        # Where either is inf or NaN, that value itself is expected, and there is no error.
        error = (block.ref.double() - exact).abs_().nan_to_num_(nan=0.0, posinf=0.0)
        self.largest = max(self.largest, float(error.max()))
        if self._bound.of_gradient or self._bound.rounds:
            if block.start == 0:
                self._counts.append(torch.zeros(_SIZES, dtype=torch.int64))
            self._counts[-1] += _counts(error, self._bound.of(block.start, exact))
            self._size = max(self._size, float(exact.abs().nan_to_num_(posinf=0.0).max()))
        if self._bound.rounds:
            error = (error - self._bound.rounding(exact.abs())).clamp_(min=0.0)
        excess = _OF_OUTPUT * error - self._unrounded.of(block.start, exact)
        self._maxima.raise_to(block.start, error)
        self._missed = self._missed or bool((excess > 0.0).any())
        self._errors += int(error.count_nonzero())
        self.beyond = max(self.beyond, float(error.max()))
        if self._bound.of_gradient:
            self._sum += float(error.sum())

    @property
    def are_few(self) -> bool:
        """Whether too few floats round to tell by how much, or whether to jump is left to luck."""
        return self._rounds and (self._bound.of_gradient or self._errors < _FEW_ERRORS)

    @property
    def typical(self) -> float:
        """The largest error beyond rounding; of a gradient the mean, or 0 if it is nothing else."""
        if not self._bound.of_gradient:
            return self.beyond
        return self._sum / self._numel if self._size >= _NOTHING * self.beyond else 0.0

    def explains(self, counts: torch.Tensor) -> bool:
        """Whether about as many errors of each size are the reference's, at half that size."""
        if not self._counts:
            return True
        own = torch.stack(self._counts)
        rare = own.sum(0).clamp(max=max(_FEW_ERRORS, int(_RARE * self._numel)))
        return bool((counts[2:] <= (_TIMES_AS_MANY * own.amax(0)).maximum(rare)[1:-1]).all())

    def slack(self, counts: torch.Tensor | None = None) -> Slices | None:
        """Return what to allow at least, or None if twice its error keeps the bound everywhere.

        Gradients may be off elsewhere than the reference's, if the counts of errors are alike.
        In 16 bits nothing is allowed if they are not: large elements' errors excuse no small ones.
        """
        if not self._missed:
            return None
        explained = counts is None or self.explains(counts)
        if self._bound.of_gradient and counts is not None:
            factor = explained * _OF_OUTPUT if self.typical else _OF_NOTHING
            return Slices(self._numel, self._maxima.values.new_tensor([factor * self.beyond]))
        if not explained:
            return None
        least = (_OF_SLICE * self._maxima.values).clamp_(max=_OF_OUTPUT * self.beyond)
        return Slices(self._maxima.length, least)


class Tally:
    """How many elements of the output at `path` are wrong.

    Attributes:
        of_allowed: the largest share that an error is of its bound, or more than that where all
            keep the absolute term alone.
        worst: the one whose error is the largest multiple of its bound.
    """

    def __init__(self, path: str, shape: tuple[int, ...], bound: Bound) -> None:
        self.path, self._shape, self._bound = path, shape, bound
        self.elements = self.wrong = self.non_finite = 0
        self.max_err = self.of_allowed = 0.0
        self.all_zero = True
        self.counts = torch.zeros(_SIZES, dtype=torch.int64)
        self.first_wrong: tuple[int, ...] | None = None
        self.worst: WorstElement | None = None
        self._severity = 0.0

    def agrees(self, block: Block) -> bool:
        """Whether all of a block is within its bounds; NaN and inf are not."""
        if block.out.numel() == 0 or not block.out.is_floating_point():
            return torch.equal(block.out, block.exact)
        if self._bound.rounds:
            return self._rounds_alike(block)
        # A difference in the outputs' own precision is off by no more than a rounding of itself.
        return self._add_if_all_agree(block, block.exact)

    def _rounds_alike(self, block: Block) -> bool:
        """Whether all are the exact result rounded, most of them to the bit; few passes as well."""
        apart = (block.out != block.exact.to(block.out.dtype)) | block.out.isinf()
        found = apart.nonzero().squeeze(1)
        exact = block.exact[found].double()
        bound = self._bound.at(block.start + found, exact)
        return bool(((block.out[found] - exact).abs() <= bound).all())

    def add(self, block: Block) -> None:
        """Take in a block."""
        count = block.out.numel()
        self.elements += count
        if count == 0:
            return
        if not block.out.is_floating_point():
            self._add_integers(block)
        elif not self._add_if_all_agree(block, block.exact.double()):
            self._add_slowly(block)

    def _add_if_all_agree(self, block: Block, exact: torch.Tensor) -> bool:
        """The usual case, in as few passes over memory as it takes."""
        error = exact.sub(block.out)
        largest = float(torch.linalg.vector_norm(error, math.inf))  # NaN if any is
        if not math.isfinite(largest):
            return False
        # No bound is less than the absolute term. Where that is kept, nothing more is to be read.
        absolute = self._bound.absolute
        share = largest / absolute if 0.0 < largest <= absolute else 0.0
        if largest > absolute:
            share = float((error.abs_() / self._bound.of(block.start, exact)).nan_to_num_().max())
        if not share <= 1.0:
            return False
        self.max_err = max(self.max_err, largest)
        self.of_allowed = max(self.of_allowed, share)
        self.all_zero = False
        return True

    def _add_slowly(self, block: Block) -> None:
        """Count and locate.

        Where the fp32 reference or the exact result is inf or NaN, either's value is as right:
        eager float32 alone gives NaN for gelu(inf), and overflows where float64 does not.
        """
        out, exact, ref = block.out.double(), block.exact.double(), block.ref.double()
        special = ~torch.isfinite(ref) | ~torch.isfinite(exact)
        same = (out == exact) | (out == ref) | (out.isnan() & (ref.isnan() | exact.isnan()))
        centre = torch.where(torch.isfinite(exact), exact, ref)
        error = (out - centre).abs()
        bound = self._bound.of(block.start, centre)
        wrong = ~((same & special) | ((error <= bound) & torch.isfinite(centre)))
        self.non_finite += int((~torch.isfinite(out) & ~special).sum())
        self.wrong += int(wrong.sum())
        self.all_zero = self.all_zero and not bool(out.any())
        ordinary = torch.where(special, 0.0, error).nan_to_num(nan=math.inf, posinf=math.inf)
        self.max_err = max(self.max_err, float(ordinary.max()))
        if self._bound.of_gradient or self._bound.rounds:
            self.counts += _counts(ordinary, bound)
        share = (error / bound).nan_to_num(nan=math.inf, posinf=math.inf)
        counted = torch.where(special | (error == 0.0), 0.0, share)
        self.of_allowed = max(self.of_allowed, float(counted.max()))
        if bool(wrong.any()):
            excess = torch.where(wrong, share, -1.0)
            at = int(excess.argmax())
            worst = self._element(block.start + at, out[at], centre[at], bound[at])
            self._note(block.start + int(wrong.int().argmax()), worst, float(excess[at]))

    def _add_integers(self, block: Block) -> None:
        # Where computed values are rounded first, the reference itself may err.
        wrong = (block.out != block.ref) & (block.out != block.exact)
        self.all_zero = self.all_zero and not bool(block.out.any())
        count = int(wrong.sum())
        if not count:
            return
        self.wrong += count
        self.of_allowed = math.inf
        at = int(wrong.int().argmax())
        difference = (block.out.double() - block.ref.double()).abs()
        self.max_err = max(self.max_err, float(difference.max()))
        worst = self._element(block.start + at, block.out[at], block.ref[at], 0.0)
        self._note(block.start + at, worst, severity=1.0)

    def _element(
        self, flat: int, got: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor | float
    ) -> WorstElement:
        return WorstElement(
            output=self.path,
            index=self._index(flat),
            got=float(got),
            expected=float(expected),
            bound=float(bound),
        )

    def _note(self, first_wrong: int, worst: WorstElement, severity: float) -> None:
        if self.first_wrong is None:
            self.first_wrong = self._index(first_wrong)
        if self.worst is None or severity > self._severity:
            self.worst, self._severity = worst, severity

    def _index(self, flat: int) -> tuple[int, ...]:
        """Turn a flat index into one number a dimension."""
        return tuple(map(int, torch.unravel_index(torch.tensor(flat), self._shape)))
