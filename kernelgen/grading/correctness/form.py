"""The form of a result, which is judged before its values, and whose memory it lies in."""

import itertools
import math

from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import Tensors, Verified
from kernelgen.grading.wire.tree import (
    Node,
    Opaque,
    Place,
    Scalar,
    SpecialFloat,
    TensorLeaf,
    TensorSpec,
    leaves,
    outline,
    path_to,
)

# Of what a reason quotes: a shape may have a million dimensions, a text a million letters.
_QUOTED_CHARACTERS = 300
# Of a Python float in a result, which is a tensor's element taken out.
_SCALAR_TOLERANCE = 1e-5


def form_problem(got: Tensors, expected: Tensors) -> Verified | None:
    """Compare structure, shapes, dtypes and devices; None if they agree."""
    ours = list(leaves(expected.tree))
    theirs = list(leaves(got.tree))
    places = [leaf.index for _, leaf in theirs if isinstance(leaf, TensorLeaf)]
    if places != list(range(len(got.specs))):
        # Ours are numbered in order; only a forged record leaves one out or names one twice.
        reason = "the described outputs do not each name one tensor"
        return Verified(status=Status.TAMPERED, reason=reason)
    for have_place, want_place in itertools.zip_longest(
        *([p for p, _ in x] for x in (theirs, ours))
    ):
        if have_place != want_place:
            return _structure(got, expected, have_place or want_place or ())
    for (place, want), (_, have) in zip(ours, theirs, strict=True):
        if isinstance(want, TensorLeaf) and isinstance(have, TensorLeaf):
            found = _tensor_problem(
                path_to(place), got.specs[have.index], expected.specs[want.index]
            )
            if found is not None:
                return found
        elif not _same_scalar(want, have):
            return _structure(got, expected, place)
    return None


def in_own_memory(found: Verified, got: Tensors, expected: Tensors) -> Verified:
    """Return what was found of values, or which output lies in an input's memory.

    Forms agree. What is wrong with values, or was written into inputs, says more.
    """
    if found.status is not Status.PASSED:
        return found
    tensors = (place for place, leaf in leaves(expected.tree) if isinstance(leaf, TensorLeaf))
    for place, have, want in zip(tensors, got.specs, expected.specs, strict=True):
        if have.of_input and not want.of_input:
            reason = (
                f"{path_to(place)} lies in an input's memory, where the reference's has memory of "
                "its own; write to a new tensor"
            )
            return Verified(status=Status.WRONG_STRUCTURE, reason=reason, borrows=True)
    return found


def _tensor_problem(path: str, found: TensorSpec, wanted: TensorSpec) -> Verified | None:
    if found.shape != wanted.shape:
        shape = _quoted(str(found.shape))
        reason = f"{path} has shape {shape}, the reference's has {wanted.shape}"
        return Verified(status=Status.WRONG_SHAPE, reason=reason)
    if found.dtype != wanted.dtype:
        reason = f"{path} is {_quoted(found.dtype)}, the reference's is {wanted.dtype}"
        return Verified(status=Status.WRONG_DTYPE, reason=reason)
    if found.device != wanted.device:
        place = _quoted(found.device)
        reason = f"{path} is on the {place}, the reference's is on the {wanted.device}"
        return Verified(status=Status.WRONG_STRUCTURE, reason=reason)
    if found.offset < 0 and found.nbytes:
        elements = math.prod(found.shape)
        reason = f"{path} covers {found.nbytes} bytes of memory for {elements} elements"
        return Verified(status=Status.WRONG_STRUCTURE, reason=reason)
    return None


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "..."


def _structure(got: Tensors, expected: Tensors, place: Place) -> Verified:
    have, want = outline(got.tree, got.specs), outline(expected.tree, expected.specs)
    reason = f"forward returned {_quoted(have)}; the reference returns {_quoted(want)}"
    if have == want:  # what is told in a few words is the same
        there = (dict(leaves(x.tree)).get(place, Opaque("nothing")) for x in (got, expected))
        have, want = (outline(x, t.specs) for x, t in zip(there, (got, expected), strict=True))
        reason += (
            f"; they differ at {_quoted(path_to(place))}: {_quoted(have)}, not {_quoted(want)}"
        )
    return Verified(status=Status.WRONG_STRUCTURE, reason=reason)


def _same_scalar(want: Node, have: Node) -> bool:
    if isinstance(want, Scalar) and isinstance(have, Scalar):
        if isinstance(want.value, float) and isinstance(have.value, float):
            return math.isclose(want.value, have.value, rel_tol=_SCALAR_TOLERANCE)
        return type(want.value) is type(have.value) and want.value == have.value
    return isinstance(want, SpecialFloat) and want == have
