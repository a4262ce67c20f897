"""The precision that a candidate computes with, measured against float64 on one call's outputs.

Beside the candidate's error stand those that the fp32 reference makes, and those that come of
rounding inputs and parameters as tensor cores round their operands: the reference is evaluated in
float64 on the rounded values. What the errors then look like is named in precision_name.py.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from kernelgen.grading.correctness.compare import Expected
from kernelgen.grading.correctness.precision_name import (
    CANNOT_BE_TOLD,
    Rounded,
    explanation,
    name_by_size,
    resembled,
)
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.verdict import EffectivePrecision, Status
from kernelgen.grading.wire.messages import Verified
from kernelgen.grading.wire.transport import span_bytes
from kernelgen.grading.wire.values import tensors_of

# A case is measured if it is no larger than this, and one evaluation takes no longer than that.
_MOST_BYTES = 512 << 20
# Of outputs, which are held some eight times over in float64.
_MOST_OUTPUT_BYTES = 128 << 20
_MOST_SECONDS = 0.5
_TF32_DROPPED_BITS = 13


def with_precision(
    found: Verified,
    reference: Reference,
    inputs: list[Any],
    expected: Expected,
    outputs: list[torch.Tensor],
) -> Verified:
    """Add the effective precision to what comparing a call's outputs found, where it can be cheap.

    Wrong values that rounded operands explain get a line that says so. The inputs are as they were
    before the call.
    """
    if found.status not in (Status.PASSED, Status.WRONG_VALUES):
        return found
    tensors = [*tensors_of(inputs), *(tensor for _, tensor in reference.state()), *outputs]
    small = sum(map(span_bytes, tensors)) <= _MOST_BYTES
    small = small and sum(map(span_bytes, outputs)) <= _MOST_OUTPUT_BYTES
    if expected.exact != "float64" or not small:
        return found
    try:
        effective = _measured(reference, inputs, expected, outputs)
    except TimeoutError:
        return found
    except Exception:  # noqa: BLE001 (rounded values may break an assertion of the model's)
        effective = None
    if effective is None:
        effective = EffectivePrecision(name=CANNOT_BE_TOLD, case=reference.name, elements=0)
    line = explanation(effective) if found.status is Status.WRONG_VALUES else ""
    reason = f"{found.reason}\n{line}" if line else found.reason
    return msgspec.structs.replace(found, effective_precision=effective, reason=reason)


def _measured(
    reference: Reference, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
) -> EffectivePrecision | None:
    ((_, exact),) = expected.exact_chunks()
    scale = _Scale(exact, expected.ref32)
    mine, fp32 = scale.errors(outputs), scale.errors(expected.ref32)
    if mine is None or fp32 is None or mine.numel() == 0:
        return None
    own = scale.beside(mine)
    rounded = []
    for name, rounding in _ROUNDINGS:
        start = time.perf_counter()
        caused = scale.errors(reference.exact.perturbed(inputs, rounding))
        if caused is not None:
            beside = scale.beside(caused)
            product = _rms(beside) * _rms(own)
            alike = float((beside * own).mean()) / product if product > 0.0 else 0.0
            rounded.append(Rounded(format=name, rms=_rms(caused), resemblance=alike))
        if time.perf_counter() - start > _MOST_SECONDS:
            raise TimeoutError
    error, fp32_error, elements = _rms(mine), _rms(fp32), mine.numel()
    like = resembled(error, elements, rounded)
    # The first of TF32's two: rounded to nearest.
    sizes = {one.format: one.rms for one in reversed(rounded)}
    by_size = name_by_size(error, fp32_error, sizes.get("TF32"))
    return EffectivePrecision(
        name=f"{like.format}-like" if like else by_size,
        case=reference.name,
        elements=elements,
        error=error,
        max_error=float(mine.abs().max()),
        fp32_error=fp32_error,
        tf32_error=sizes.get("TF32"),
        bf16_error=sizes.get("bf16"),
        fp16_error=sizes.get("fp16"),
        resemblance=like.resemblance if like else None,
    )


class _Scale:
    """Puts all float32 outputs into one vector, each in units of its output's own size.

    Elements that are inf or NaN in either reference are left out.
    """

    def __init__(self, exact: list[torch.Tensor], ref32: list[torch.Tensor]) -> None:
        self._parts: list[tuple[int, torch.Tensor | slice, float]] = []
        for position, (right, ref) in enumerate(zip(exact, ref32, strict=True)):
            if ref.dtype is torch.float32:
                finite = (torch.isfinite(right) & torch.isfinite(ref)).reshape(-1)
                # To pick by a mask takes torch all threads, however little there is.
                kept = slice(None) if bool(finite.all()) else finite
                unit = _rms(right.reshape(-1).double()[kept]) if bool(finite.any()) else 0.0
                if unit > 0.0:
                    self._parts.append((position, kept, unit))
        self._signal = self._vector(exact)

    def _vector(self, outputs: list[torch.Tensor]) -> torch.Tensor:
        """Return the outputs in those units, flat, in float64."""
        parts = [
            outputs[position].reshape(-1).double()[kept] / unit
            for position, kept, unit in self._parts
        ]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def errors(self, outputs: list[torch.Tensor]) -> torch.Tensor | None:
        """Return output - exact in those units; None if any is not finite."""
        errors = self._vector(outputs) - self._signal
        return errors if bool(torch.isfinite(errors).all()) else None

    def beside(self, errors: torch.Tensor) -> torch.Tensor:
        """Return the errors without their component along the exact result."""
        square = float(self._signal.square().mean())
        return errors - (float((errors * self._signal).mean()) / square) * self._signal


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _tf32(tensor: torch.Tensor, rounded_up: int) -> torch.Tensor:
    """Drop TF32's 13 bits, once the given part of the last kept one has been added."""
    bits = tensor.float().contiguous().view(torch.int32)
    kept = ((bits + rounded_up) & -(1 << _TF32_DROPPED_BITS)).view(torch.float32)
    return torch.where(torch.isfinite(tensor), kept, tensor.float())


# Tensor cores truncate fp32 operands to TF32; a kernel may round them before.
_ROUNDINGS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("TF32", lambda tensor: _tf32(tensor, 1 << (_TF32_DROPPED_BITS - 1))),
    ("TF32", lambda tensor: _tf32(tensor, 0)),
    ("bf16", lambda tensor: tensor.bfloat16().float()),
    ("fp16", lambda tensor: tensor.half().float()),
)
