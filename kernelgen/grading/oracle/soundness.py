"""Whether anything can be verified against a reference at all."""

from __future__ import annotations

import msgspec

from kernelgen.grading.correctness.compare import (
    Expected,
    compare,
    finite_share,
    relative_reference_error,
)
from kernelgen.grading.judged import ProblemFault
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.values import tensors_of

# A reference that differs from itself by more than this share of its size verifies nothing.
_LEAST_PRECISION = 1e-4
_LEAST_FINITE_SHARE = 0.5


def require_sound(reference: Reference, expected: Expected, *, must_have_elements: bool) -> None:
    """Refuse a reference that is random, imprecise, mostly not finite, or empty.

    Args:
        reference: of the case.
        expected: what it gave on call 0.
        must_have_elements: an empty result is refused; an extra case may have one, to see that a
            solution survives an empty batch.

    Raises:
        ProblemFault: nothing can be verified with it.
    """
    if must_have_elements and not any(tensor.numel() for tensor in expected.ref32):
        raise ProblemFault("the reference returns no elements, so there is nothing to compare")
    for tensor in expected.ref32:
        share = finite_share(tensor)
        if share < _LEAST_FINITE_SHARE:
            raise ProblemFault(
                f"{100 * (1 - share):.3g} % of an output of the reference is NaN or inf"
            )
    again = tensors_of(reference.run(reference.make_inputs(0)))
    itself = msgspec.structs.replace(
        expected, exact="float32", exact_chunks=lambda: iter([(0, expected.ref32)])
    )
    found = compare(again, itself, _LEAST_PRECISION, full=False)
    if found.status is not Status.PASSED:
        reason = "the reference gives different results on equal inputs"
        raise ProblemFault(f"{reason}: {found.reason}")
    error = relative_reference_error(expected)
    if not error <= _LEAST_PRECISION:
        raise ProblemFault(
            f"the reference in float32 is off from itself in float64 by {error:.3g} of its size"
        )
