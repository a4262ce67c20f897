"""Meaning of "equal to 1e-5": the one place that decides it. docs/correctness.md explains it.

With exact = the reference in float64 on the same inputs and parameters, an element agrees if

    |out - exact| <= atol_eff + tol * |exact|,    atol_eff = tol * min(1, rms(exact)).

The absolute term is never more than tol of the signal: a softmax over 262144 columns has outputs
near 4e-6, and with a plain 1e-5 zeros would pass. Where twice the pinned fp32 reference's error
misses that bound (long dot products), the bound is max(bound, 2 * max|ref32 - exact|), measured on
the same inputs and held to 4 times the maximum in the slice that the element lies in (elements.py):
honest fp32 passes, TF32 and bf16 do not. Where next to no element has an error, as behind a ReLU
that lets one in a million through, the maximum is over inputs nearby as well.

An output of 16 bits may be rounded to its type on top of that, by half a unit in the last place of
|exact| + bound; and of the reference's errors what that rounding explains does not count. So one
operator has the bound of fp32 before it is rounded, as a sum of products in fp32 registers keeps
it, and a chain whose intermediate tensors the reference rounds has twice what these cost it, in
about as many elements: errors of each size are counted, as gradients' are (elements.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import msgspec
import torch

from kernelgen.grading.correctness.elements import (
    BLOCK_ELEMENTS,
    Block,
    Bound,
    ErrorOfReference,
    Tally,
    signal,
)
from kernelgen.grading.correctness.indices import Rankings, settle
from kernelgen.grading.verdict import Status, WorstElement
from kernelgen.grading.wire.messages import Tensors, Verified
from kernelgen.grading.wire.tree import TensorLeaf, leaves, path_to

# A reference that errs by half a bound may be larger by as much, and its bound in proportion: at a
# tolerance of 1e-2, the largest, a share s keeps s * (1 + 1e-2 / 2) <= 1 / 2.
_ABOUT_HALF = 0.497
# A reference's largest error on some inputs is this many times that on others, at most.
_TIMES_ANOTHER = 2.0

Chunk = tuple[int, list[torch.Tensor]]
"""First row of the chunk, and the exact value of each output tensor from that row on."""
Nearby = tuple[list[torch.Tensor], list[torch.Tensor]]
"""The fp32 and the exact outputs of one call."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the reference on one set of inputs.

    Attributes:
        described: the reference's outputs as a tree.
        ref32: their tensors, computed by the pinned fp32 reference.
        exact_chunks: yields the exact outputs, by chunks of rows; may be called several times.
        exact: how those are computed, as the verdict names it.
        absolute: by KernelBench's rule: the absolute term, and `ref32` is what to compare with.
        rankings: of outputs that are indices: what they point into. Others must be equal.
        nearby: yields fp32 and exact results of inputs nearby, which round anew.
        gradients: so many of the first outputs are gradients.
        errors: the largest of `ref32`'s so far, by output, on whatever inputs; filled here.
    """

    described: Tensors
    ref32: list[torch.Tensor]
    exact_chunks: Callable[[], Iterator[Chunk]]
    exact: str
    absolute: float | None = None
    rankings: Rankings | None = None
    nearby: Callable[[], Iterator[Nearby]] | None = None
    gradients: int = 0
    errors: dict[int, float] = {}

    def in_float32(self) -> Expected:
        """Return the same with the fp32 reference's result as the exact one."""
        return msgspec.structs.replace(
            self, exact="float32", exact_chunks=lambda: iter([(0, self.ref32)]), nearby=None
        )


def compare(
    outputs: list[torch.Tensor], expected: Expected, tolerance: float, *, full: bool
) -> Verified:
    """Compare values, output by output, with `tol` of the formula above.

    The outputs are private copies, of the expected shapes and dtypes. `full` also measures errors,
    the reference's own too, where the outcome does not need them.
    """
    if expected.rankings is not None:
        ranks, least = expected.rankings, expected.absolute
        outputs = settle(outputs, expected.ref32, ranks, tolerance, least)
    if expected.absolute is None:
        absolute = [tolerance * min(1.0, signal(ref)) for ref in expected.ref32]
    else:
        expected = expected.in_float32()
        absolute = [expected.absolute or 0.0] * len(expected.ref32)
    # One in float32's place has been rounded as well.
    roundings = 2 if expected.exact == "float32" else 1
    bounds = [
        Bound(tolerance, each, None, ref.dtype, roundings, of_gradient=n < expected.gradients)
        for n, (each, ref) in enumerate(zip(absolute, expected.ref32, strict=True))
    ]
    if not full and _surely_agree(outputs, expected, bounds):
        elements = sum(out.numel() for out in outputs)
        return Verified(status=Status.PASSED, reason="", elements=elements, exact=expected.exact)
    tallies = _compare_all(outputs, expected, bounds)
    errors: list[ErrorOfReference] = []
    wrong = any(tally.wrong for tally in tallies)
    if full or wrong:
        errors = _reference_errors(expected, bounds)
        # Few say little of others.
        for n, error in ((n, one.largest) for n, one in enumerate(errors) if not one.are_few):
            expected.errors[n] = max(error, expected.errors.get(n, 0.0))
    if wrong:
        explained = [e.explains(tally.counts) for e, tally in zip(errors, tallies, strict=True)]
        few = {n: e for n, e in enumerate(errors) if e.are_few or not explained[n]}
        for ref32, exact in expected.nearby() if few and expected.nearby else ():
            near = msgspec.structs.replace(
                expected, ref32=ref32, exact_chunks=lambda exact=exact: iter([(0, exact)])
            )
            _add_errors(few, near)
        slacks = [e.slack(tally.counts) for e, tally in zip(errors, tallies, strict=True)]
        if any(slack is not None for slack in slacks):
            pairs = zip(bounds, slacks, strict=True)
            wider = [msgspec.structs.replace(bound, least=slack) for bound, slack in pairs]
            tallies = _compare_all(outputs, expected, wider)
    return _conclude(tallies, errors, expected)


def relative_reference_error(expected: Expected) -> float:
    """Return the reference's largest error over the root mean square of its output.

    How far an output's own type rounds it does not count. Of a gradient it is the mean error, and
    none where that is 0 but for rounding.
    """
    bounds = [
        Bound(0.0, 0.0, dtype=ref.dtype, of_gradient=n < expected.gradients)
        for n, ref in enumerate(expected.ref32)
    ]
    errors = _reference_errors(expected, bounds)
    worst = 0.0
    for error, ref in zip(errors, expected.ref32, strict=True):
        scale = signal(ref)
        if scale:
            worst = max(worst, error.typical / scale)
    return worst


def finite_share(tensor: torch.Tensor) -> float:
    """Return which part of a tensor's elements is finite, between 0 and 1."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 1.0
    blocks = torch.split(tensor.contiguous().view(-1), BLOCK_ELEMENTS)
    return sum(int(torch.isfinite(block).sum()) for block in blocks) / tensor.numel()


def _all_blocks(outputs: list[torch.Tensor], expected: Expected) -> Iterator[tuple[int, Block]]:
    """Yield every block of every output, with the output's position."""
    for out, ref in zip(outputs, expected.ref32, strict=True):
        if out.shape != ref.shape or out.dtype != ref.dtype:
            raise ValueError("tensors of different forms cannot be compared")
    flat_out = [out.contiguous().view(-1) for out in outputs]
    flat_ref = [ref.contiguous().view(-1) for ref in expected.ref32]
    seen = [0] * len(outputs)
    for start_row, exact in expected.exact_chunks():
        for position, part in enumerate(exact):
            first = start_row * math.prod(part.shape[1:])
            for block in torch.split(part.contiguous().view(-1), BLOCK_ELEMENTS):
                where = slice(first, first + block.numel())
                out, ref = flat_out[position][where], flat_ref[position][where]
                yield position, Block(first, out, block, ref)
                seen[position], first = seen[position] + block.numel(), where.stop
    for count, out in zip(seen, outputs, strict=True):
        if count != out.numel():
            raise RuntimeError(f"{count} of {out.numel()} elements were compared")


def _surely_agree(outputs: list[torch.Tensor], expected: Expected, bounds: list[Bound]) -> bool:
    """Whether outputs are so near what is known that errors need not be measured.

    Of 16 bits that is the exact result, rounded. Else it is the fp32 reference's, to which float64
    has nothing to add: an element that is off from it by half its bound is within it if the
    reference errs by no more than the other half. If that errs by more, twice its error is allowed,
    which is more than both. Where the reference's errors on other inputs are known, and small
    beside the bound, twice the largest of them is room enough for it, and an element has the rest.
    """
    if expected.exact == "float32" or expected.gradients:
        return False
    if not any(one.rounds for one in bounds):
        bounds = [_nearer(one, expected.errors.get(n)) for n, one in enumerate(bounds)]
        expected = expected.in_float32()
    tallies = _tallies(outputs, expected, bounds)
    blocks = _all_blocks(outputs, expected)
    return all(tallies[position].agrees(block) for position, block in blocks)


def _nearer(bound: Bound, error: float | None) -> Bound:
    """Return how far an element may be off from a reference that errs about so much, if known."""
    half = _ABOUT_HALF * bound.absolute
    rest = half if error is None else bound.absolute - _TIMES_ANOTHER * error
    part = 1.0 if rest > half else _ABOUT_HALF
    return msgspec.structs.replace(
        bound, tolerance=part * bound.tolerance, absolute=max(rest, half)
    )


def _tallies(outputs: list[torch.Tensor], expected: Expected, bounds: list[Bound]) -> list[Tally]:
    nodes = leaves(expected.described.tree)
    paths = [path_to(place) for place, leaf in nodes if isinstance(leaf, TensorLeaf)]
    return [
        Tally(path, tuple(out.shape), bound)
        for path, out, bound in zip(paths, outputs, bounds, strict=True)
    ]


def _compare_all(
    outputs: list[torch.Tensor], expected: Expected, bounds: list[Bound]
) -> list[Tally]:
    tallies = _tallies(outputs, expected, bounds)
    for position, block in _all_blocks(outputs, expected):
        tallies[position].add(block)
    return tallies


def _reference_errors(expected: Expected, bounds: list[Bound]) -> list[ErrorOfReference]:
    errors = [
        ErrorOfReference(tuple(ref.shape), ref.device, bound)
        for ref, bound in zip(expected.ref32, bounds, strict=True)
    ]
    _add_errors(dict(enumerate(errors)), expected)
    return errors


def _add_errors(errors: Mapping[int, ErrorOfReference], expected: Expected) -> None:
    """Add the errors of the outputs at these positions."""
    for position, block in _all_blocks(expected.ref32, expected):
        if position in errors:
            errors[position].add(block)


def _conclude(
    tallies: list[Tally], reference: list[ErrorOfReference], expected: Expected
) -> Verified:
    errors = [tally.max_err for tally in tallies]
    ref_errors = [error.largest for error in reference]
    found = Verified(
        status=Status.PASSED,
        reason="",
        elements=sum(tally.elements for tally in tallies),
        wrong=sum(tally.wrong for tally in tallies),
        max_abs_err=_finite_max(errors),
        of_allowed=_finite_max([tally.of_allowed for tally in tallies]),
        ref_max_abs_err=_finite_max(ref_errors),
        exact=expected.exact,
    )
    if not found.wrong:
        return found
    non_finite = any(tally.non_finite for tally in tallies)
    first = next(tally for tally in tallies if tally.wrong)
    worst = first.worst
    assert worst is not None
    return msgspec.structs.replace(
        found,
        status=Status.NON_FINITE if non_finite else Status.WRONG_VALUES,
        reason=_explain(first, worst),
        # JSON has no word for NaN and inf; the reason says them.
        worst=worst if math.isfinite(worst.got) and math.isfinite(worst.expected) else None,
    )


def _finite_max(values: list[float]) -> float | None:
    largest = max(values, default=None)
    return largest if largest is not None and math.isfinite(largest) else None


def _explain(tally: Tally, worst: WorstElement) -> str:
    if tally.non_finite:
        what = f"{tally.non_finite} of {tally.elements} elements of {tally.path} are NaN or inf"
        if tally.wrong > tally.non_finite:
            what += f", {tally.wrong - tally.non_finite} more are wrong"
    else:
        share = 100.0 * tally.wrong / tally.elements
        what = (
            f"{tally.wrong} of {tally.elements} elements of {tally.path} are wrong ({share:.3g} %)"
        )
    text = (
        f"{what}; the worst is [{_numbers(worst.index)}]: got {worst.got:.9g}, "
        f"expected {worst.expected:.9g} within {worst.bound:.3g}"
    )
    if tally.all_zero:
        text += f"\nevery element of {tally.path} is 0: was anything written to it?"
    elif tally.first_wrong is not None and tally.wrong < tally.elements:
        text += f"\nthe first wrong element is [{_numbers(tally.first_wrong)}]"
    return text


def _numbers(index: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in index)
