"""Whether a candidate gives the same result twice on the same inputs.

A kernel that adds with atomics gives other bits each time and is honest. One that reads what
another thread may or may not have written yet gives other values, and mostly the right ones: that
is found by asking again. Each of the two results has to be within its bound of the exact one, so
two of them differ by at most twice the bound; a second one beyond it is what a race looks like.
"""

import math

import msgspec
import torch

from kernelgen.grading.correctness.compare import Expected, compare
from kernelgen.grading.correctness.elements import BLOCK_ELEMENTS
from kernelgen.grading.oracle.footprint import free_bytes
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import Repeated
from kernelgen.grading.wire.transport import same_bytes, span

# Outputs are kept whole while they take less than this share of the free memory, else that much of
# each.
_KEPT_SHARE = 0.1
_LIKELY_CAUSE = (
    "the same inputs gave values that agree one call before: a race between threads, memory that "
    "is read before it is written, or state that is kept from call to call"
)


class FirstResult(msgspec.Struct, frozen=True):
    """First results of a candidate: the beginning of each output, flat, or the `whole` of it."""

    kept: list[torch.Tensor]
    whole: bool


def keep(outputs: list[torch.Tensor], device: str) -> FirstResult:
    """Keep the outputs, or as much of each as there is room for."""
    room = _KEPT_SHARE * free_bytes(device)
    total = sum(out.nbytes for out in outputs)
    if total <= room:
        return FirstResult([out.reshape(-1) for out in outputs], whole=True)
    share = room / total
    # A copy: a view would hold the memory of all of it.
    parts = [out.reshape(-1)[: int(share * out.numel())].clone() for out in outputs]
    return FirstResult(parts, whole=False)


def compare_again(
    again: list[torch.Tensor], first: FirstResult, expected: Expected, tolerance: float
) -> Repeated:
    """Compare second outputs, of the expected form, with the first ones and the exact result."""
    flat = [out.reshape(-1) for out in again]
    pairs = [(new[: len(old)], old) for new, old in zip(flat, first.kept, strict=True)]
    # By bytes: NaN is like itself, and 0 is not like -0.
    identical = all(same_bytes(span(new), span(old)) for new, old in pairs)
    if identical and first.whole:
        return Repeated(identical=True, max_diff=0.0)
    largest = max((_largest_difference(new, old) for new, old in pairs), default=0.0)
    difference = largest if math.isfinite(largest) else None
    found = compare(again, expected, tolerance, full=False)
    if found.status is not Status.PASSED:
        found = msgspec.structs.replace(found, reason=f"{found.reason}\n{_LIKELY_CAUSE}")
        return Repeated(identical=False, max_diff=difference, found=found)
    return Repeated(identical=identical, max_diff=difference)


def _largest_difference(new: torch.Tensor, old: torch.Tensor) -> float:
    blocks = zip(*(torch.split(one, BLOCK_ELEMENTS) for one in (new, old)), strict=True)
    return max((_difference(a, b) for a, b in blocks if len(a)), default=0.0)


def _difference(new: torch.Tensor, old: torch.Tensor) -> float:
    wide, other = new.double(), old.double()
    same = (wide == other) | (wide.isnan() & other.isnan())
    # NaN on one side alone is no number: inf stands for it until the report leaves it out.
    apart = (wide - other).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    return float(torch.where(same, 0.0, apart).max())
