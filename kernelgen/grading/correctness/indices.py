"""Outputs that are indices, such as argmax's and topk's: ties are nobody's fault.

Another index than the reference's agrees where the value that it points to is the same. Where the
values are computed, not given, "the same" means within the bound of an output with these values:
an honest kernel rounds them otherwise, and of two that are so near each other may rank either
first. Of indices that the reference names once each, such as topk's, none may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import torch

from kernelgen.grading.correctness.elements import BLOCK_ELEMENTS, Block, Bound, ErrorOfReference
from kernelgen.grading.correctness.elements import signal as signal_of


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Values that the indices of one output point into.

    Index c of an element of the output names the value of flat index start + c * step.

    Attributes:
        starts: where each element's slice of the values begins, of the output's shape, int64.
        step: from one value of a slice to the next, in flat indices.
        count: values in a slice.
        values: what the pinned fp32 reference ranked.
        exact: the same in float64, or `values` where there is no such result.
        given: they are inputs or parameters: nothing was rounded, and only equal values tie.
    """

    starts: torch.Tensor
    step: int
    count: int
    values: torch.Tensor
    exact: torch.Tensor
    given: bool

    def with_exact(self, other: Ranking | None) -> Ranking:
        """Return the same with the float64 reference's values, unless they are others."""
        alike = other is not None and (other.step, other.count) == (self.step, self.count)
        if other is None or not alike or other.values.shape != self.values.shape:
            return self
        return msgspec.structs.replace(self, exact=other.values)

    def flat(self, indices: torch.Tensor) -> torch.Tensor:
        """Return the flat indices of the values that an output's indices name."""
        return self.starts + indices.long() * self.step


Rankings = Callable[[], Sequence[Ranking | None]]
"""Returns what each output ranks, None for one that is no index; it may run the reference."""


def is_integer(tensor: torch.Tensor) -> bool:
    """Whether a tensor may hold indices."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def settle(
    outputs: list[torch.Tensor],
    ref32: list[torch.Tensor],
    rankings: Rankings,
    tolerance: float,
    absolute: float | None,
) -> list[torch.Tensor]:
    """Return the outputs with the reference's own index wherever another one is as right.

    The reference's have the same shapes and dtypes. Rankings are asked for only if an index
    differs. The bounds are those of computed values; without `absolute`, that is derived from their
    size, as compare.py does.
    """
    differ = [is_integer(o) and not torch.equal(o, r) for o, r in zip(outputs, ref32, strict=True)]
    if not any(differ):
        return outputs
    settled = list(outputs)
    for position, ranking in enumerate(rankings()):
        if differ[position] and ranking is not None:
            agrees = _agrees(outputs[position], ref32[position], ranking, tolerance, absolute)
            settled[position] = ref32[position].where(agrees, outputs[position])
    return settled


def _agrees(
    out: torch.Tensor,
    ref: torch.Tensor,
    ranking: Ranking,
    tolerance: float,
    absolute: float | None,
) -> torch.Tensor:
    """Return for each index whether it is as right as the reference's."""
    inside = (out >= 0) & (out < ranking.count)
    at, own = ranking.flat(torch.where(inside, out, ref)), ranking.flat(ref)
    mine, best = ranking.values.take(at), ranking.values.take(own)
    same = (mine == best) | (mine.isnan() & best.isnan())
    bound = None if ranking.given else _bound(ranking, tolerance, absolute)
    if bound is not None:
        mine, best = ranking.exact.take(at), ranking.exact.take(own)
        same |= (mine - best).abs() <= bound.at(own, best)
    if not bool(_repeated(own).any()):
        same &= ~_repeated(at)
    return inside & same


def _bound(ranking: Ranking, tolerance: float, absolute: float | None) -> Bound | None:
    """Return how far apart values may be, None if the reference computes them without rounding."""
    values, exact = (each.reshape(-1) for each in (ranking.values, ranking.exact))
    if absolute is None:
        absolute = tolerance * min(1.0, signal_of(values))
    # The reference's best has been rounded, and so has what another names.
    bound = Bound(tolerance, absolute, dtype=ranking.values.dtype, roundings=2)
    if ranking.exact is ranking.values:
        return bound
    error = ErrorOfReference(tuple(ranking.values.shape), values.device, bound)
    for start in range(0, values.numel(), BLOCK_ELEMENTS):
        part = values[start : start + BLOCK_ELEMENTS]
        error.add(Block(start, part, exact[start : start + BLOCK_ELEMENTS], part))
    return msgspec.structs.replace(bound, least=error.slack()) if error.largest else None


def _repeated(numbers: torch.Tensor) -> torch.Tensor:
    """Return for each number whether another one equals it."""
    ordered, order = numbers.reshape(-1).sort()
    twins = ordered[1:] == ordered[:-1]
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[order[1:]] = twins
    repeated[order[:-1]] |= twins
    return repeated.view(numbers.shape)
