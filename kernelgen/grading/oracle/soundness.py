"""Weight of a pass against a reference: nothing, little, or that the work was done.

A reference that is random, imprecise or empty verifies nothing and is refused. Where an answer that
needs no work passes too, a pass says little: no tolerance can fix such a problem, but other
inputs, another scale or another output can.
"""

from collections.abc import Iterator
from itertools import takewhile
from time import monotonic
from typing import Any

import msgspec
import torch

from kernelgen.grading.correctness.compare import (
    Expected,
    compare,
    finite_share,
    relative_reference_error,
)
from kernelgen.grading.correctness.indices import is_integer
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire.values import copied, tensors_of
from kernelgen.problem.record import DTYPES

_LEAST_FINITE_SHARE = 0.5
# Calls whose inputs no candidate is graded on.
_CALL, _OTHER_CALL, _THIRD_CALL = -2, -3, -4
_HEAD_ELEMENTS = 1 << 16
_PLAINLY = 1e-2
_REPEATS_WITHIN = 1e-4
_NEAR = 3e-5
# One unlucky value, such as a bias that leaves a tail of the signal, can make fp32 too inexact.
_DRAWS = 3


class _Imprecise(ProblemFault):
    """The fp32 reference is too far from its float64 result on what was drawn."""


def expect_sound(reference: Reference, *, must_have_elements: bool) -> tuple[list[Any], Expected]:
    """Return inputs and what a reference that can verify something gives on them.

    Where fp32 is too inexact on what was drawn, inputs and parameters are drawn again.

    Raises:
        ProblemFault: see `require_sound`.
    """
    for left in reversed(range(_DRAWS)):
        inputs, expected = reference.expect(0)
        try:
            require_sound(reference, expected, must_have_elements=must_have_elements)
        except _Imprecise as found:
            fault = found.with_traceback(None)  # which would hold the tensors
        else:
            return inputs, expected
        del inputs, expected
        if not left or not reference.draw_again():
            break
    raise fault


def require_sound(reference: Reference, expected: Expected, *, must_have_elements: bool) -> None:
    """Refuse a reference that is random, imprecise, mostly not finite, or empty.

    An empty result is refused where there must be elements; an extra case may have one, to see that
    a solution survives an empty batch.

    Raises:
        ProblemFault: nothing can be verified with it.
    """
    if must_have_elements and not any(tensor.numel() for tensor in expected.ref32):
        raise ProblemFault(
            "the reference returns no elements, so there is nothing to compare; let get_inputs "
            "return larger inputs"
        )
    for tensor in expected.ref32:
        share = finite_share(tensor)
        if share < _LEAST_FINITE_SHARE:
            raise ProblemFault(
                f"{100 * (1 - share):.3g} % of an output of the reference is NaN or inf; let "
                "get_inputs return values that Model can compute with"
            )
    again = tensors_of(reference.run(reference.code.make_inputs(0), 0))
    found = compare(again, expected.in_float32(), _REPEATS_WITHIN, full=False)
    error = relative_reference_error(expected)
    if found.status is not Status.PASSED and error <= reference.least_precision:
        # A library that adds in any order may be as far from itself as both are from the exact sum.
        found = compare(again, expected, _REPEATS_WITHIN, full=False)
    if found.status is not Status.PASSED:
        reason = (
            "the reference gives different results on equal inputs, with the generators of random "
            "numbers in one state"
        )
        mend = "let it keep nothing, such as a counter or a generator of its own"
        if reference.draws:
            mend = "let it keep nothing, and draw from default generators alone, the same each call"
        if not reference.code.manner.eval_mode:
            mend += (
                "; if a layer that is random in training mode does it, such as a recurrent net's "
                "dropout, --eval-mode grades both sides under eval()"
            )
        raise ProblemFault(f"{reason}: {found.reason}\n{mend}")
    is_exact = reference.rule == "exact" and expected.absolute is None
    if is_exact and not error <= reference.least_precision:
        raise _Imprecise(
            f"the reference in {DTYPES[reference.code.manner.precision]} is off from itself in "
            f"float64 by {error:.3g} of its size; use inputs on which that is exact enough, or "
            "--tolerance reference, which allows twice that, or --tolerance kernelbench, which "
            "compares with that alone"
        )


def trivial_answers(reference: Reference, inputs: list[Any], expected: Expected) -> tuple[str, ...]:
    """Name the answers without any computation that pass, such as `all zeros`."""
    return tuple(
        name
        for name, outputs in _predictors(reference, inputs, expected.ref32)
        if _passes(reference, outputs, expected)
    )


def idle_parts(reference: Reference, limit_s: float | None = None) -> tuple[tuple[str, ...], int]:
    """Name the inputs and parameters that may be ignored without a difference.

    A parameter is tried as all zeros and as all ones, the values of a map that is left out. Buffers
    that the model itself writes to, such as running statistics, are not tried: they are results.
    Such a part is tried with another draw of inputs and parameters as well, however long it takes:
    large weights, say, may saturate what follows them, and then a bias makes no difference.
    Also returns how many there was no time to try, where they are tried for no longer than a limit.
    """
    found, left = _idle_in_this_draw(reference, limit_s, among=None)
    if found and reference.draw_again():
        again, _ = _idle_in_this_draw(reference, limit_s=None, among=found)
        found = tuple(name for name in found if name in again)
    return found, left


def _idle_in_this_draw(
    reference: Reference, limit_s: float | None, among: tuple[str, ...] | None
) -> tuple[tuple[str, ...], int]:
    begin = monotonic()
    buffers = {name: tensor.clone() for name, tensor in reference.model.named_buffers()}
    inputs, expected = reference.expect(_CALL)
    # Inputs nearby would be tried with the parameters as they are changed here.
    expected = msgspec.structs.replace(expected, nearby=None)
    others = reference.code.make_inputs(_OTHER_CALL)
    state = [
        (name, tensor)
        for name, tensor in reference.state()
        if tensor.is_floating_point() and tensor.numel()
        # By values: torch counts no change of running statistics.
        if (name not in buffers or torch.equal(tensor, buffers[name]))
        and (among is None or name in among)
    ]
    positions = [
        n
        for n, other in enumerate(others)
        if isinstance(other, torch.Tensor) and (among is None or f"inputs[{n}]" in among)
    ]
    left = len(positions) + len(state)

    def goes_on() -> bool:
        nonlocal left
        if limit_s is not None and monotonic() - begin > limit_s:
            return False
        left -= 1
        return True

    found = []
    for position in takewhile(lambda _: goes_on(), positions):
        # Twice: a single number agrees by chance now and then.
        calls = (others if n == 0 else reference.code.make_inputs(_THIRD_CALL) for n in range(2))
        changed = (_changed(inputs, position, other[position]) for other in calls)
        if all(each and _runs_alike(reference, each, expected) for each in changed):
            found.append(f"inputs[{position}]")
    for name, tensor in takewhile(lambda _: goes_on(), state):
        kept = tensor.clone()
        alike = False
        for value in (0.0, 1.0):
            tensor.fill_(value)
            alike = alike or _runs_alike(reference, inputs, expected)
        tensor.copy_(kept)
        if alike:
            found.append(name)
    return tuple(found), left


def _predictors(
    reference: Reference, inputs: list[Any], ref32: list[torch.Tensor]
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    yield "all zeros", [torch.zeros_like(ref) for ref in ref32]
    yield "all ones", [torch.ones_like(ref) for ref in ref32]
    if all(ref.numel() == 1 for ref in ref32):
        # Of one number, such as a loss, the mean is the number itself.
        found = _result(reference, _OTHER_CALL)
        if all(torch.allclose(out, ref, rtol=_NEAR) for out, ref in zip(found, ref32, strict=True)):
            found = _result(reference, _THIRD_CALL)  # the first agreed by chance, or both do
        yield "the result of other inputs", found
    elif all(ref.is_floating_point() for ref in ref32):
        yield "the mean everywhere", [torch.full_like(ref, _mean(ref)) for ref in ref32]
    if any(map(is_integer, ref32)):
        # Indices that would pass where all values tie: 0 alone may not be named twice.
        for dim in range(max(ref.dim() for ref in ref32)):
            yield f"indices in order along dimension {dim}", [_in_order(ref, dim) for ref in ref32]
    for position, given in enumerate(tensors_of(inputs)):
        if all(given.shape == ref.shape and given.dtype == ref.dtype for ref in ref32):
            yield f"input {position} as it is", [given] * len(ref32)


def _changed(inputs: list[Any], position: int, other: torch.Tensor) -> list[Any]:
    """Return inputs with another one among them; nothing where there is no other.

    One that is the same in each call is turned around.
    """
    own = inputs[position]
    for each in (other, other.flatten().flip(0).view(other.shape)):
        if each.shape != own.shape or not torch.equal(each, own):
            return [*inputs[:position], each, *inputs[position + 1 :]]
    return []


def _result(reference: Reference, call: int) -> list[torch.Tensor]:
    return tensors_of(reference.run(reference.code.make_inputs(call), call))


def _in_order(ref: torch.Tensor, dim: int) -> torch.Tensor:
    if not is_integer(ref):
        return torch.full_like(ref, _mean(ref) if ref.is_floating_point() else 0)
    if dim >= ref.dim():
        return torch.zeros_like(ref)
    order = torch.arange(ref.shape[dim], dtype=ref.dtype, device=ref.device)
    return order.view(-1, *[1] * (ref.dim() - dim - 1)).expand(ref.shape)


def _mean(tensor: torch.Tensor) -> float:
    return float(tensor.mean(dtype=torch.float64).nan_to_num(posinf=0.0, neginf=0.0))


def _runs_alike(reference: Reference, inputs: list[Any], expected: Expected) -> bool:
    outputs = tensors_of(reference.run(copied(inputs), _CALL))
    same_form = [tuple(out.shape) for out in outputs] == [tuple(r.shape) for r in expected.ref32]
    return same_form and _passes(reference, outputs, expected)


def _plainly_wrong(out: torch.Tensor, ref: torch.Tensor) -> bool:
    """Whether the first elements are off by more than 1 %: that spares looking at all of them.

    Of integers it cannot be told so soon: another index may be as right.
    """
    if not ref.is_floating_point():
        return False
    mine, right = (t.reshape(-1)[:_HEAD_ELEMENTS].double() for t in (out, ref))
    size = right.square().mean().sqrt()
    return bool(((mine - right).abs() > _PLAINLY * (right.abs() + size)).any())


def _passes(reference: Reference, outputs: list[torch.Tensor], expected: Expected) -> bool:
    if not any(out.numel() for out in outputs):
        return False
    # By another rule than the exact one, what is off by more may pass.
    pairs = zip(outputs, expected.ref32, strict=True)
    if reference.rule == "exact" and any(_plainly_wrong(out, ref) for out, ref in pairs):
        return False
    return compare(outputs, expected, reference.tolerance, full=False).status is Status.PASSED
