"""Whether wrong values are what rounded operands give, as tensor cores round theirs.

The reference is evaluated in float64 on inputs and parameters that are rounded to a format. Where
the candidate's errors run along with those that this causes, element by element, and are about as
large, the format explains them. What is a multiple of the exact result does not count: a wrong
constant may be as large.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelgen.grading.correctness.compare import Expected
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.wire.transport import span_bytes
from kernelgen.grading.wire.values import tensors_of

# Looked at is what is no larger than this, outputs counted for all that is made of them, and where
# one evaluation takes no longer than that.
_MOST_BYTES = 512 << 20
_TIMES_OUTPUTS = 4
_MOST_SECONDS = 0.5
# Two sizes within this factor may have one cause.
_NEAR = 3.0
# The least resemblance, and how unlikely it has to be by chance, in standard deviations.
_LEAST_RESEMBLANCE = 0.5
_DEVIATIONS = 4.0
# fp16 has TF32's mantissa: only a plainly better fit, where its range matters, tells them apart.
_PLAINLY = 0.05
_TF32_DROPPED_BITS = 13


def explanation(
    reference: Reference, inputs: list[Any], expected: Expected, outputs: list[torch.Tensor]
) -> str:
    """Return the line that explains wrong values by rounded operands, "" if none does, or cheaply.

    The inputs are as they were before the call.
    """
    tensors = [*tensors_of(inputs), *(tensor for _, tensor in reference.state())]
    tensors += outputs * _TIMES_OUTPUTS
    if expected.exact != "float64" or sum(map(span_bytes, tensors)) > _MOST_BYTES:
        return ""
    own = _errors(outputs, expected)
    least = max(_LEAST_RESEMBLANCE, _DEVIATIONS / math.sqrt(max(1, own.numel())))
    fits: dict[str, float] = {}
    for name, rounding in _ROUNDINGS:
        start = time.perf_counter()
        try:
            caused = _errors(reference.exact.perturbed(inputs, rounding), expected)
        except Exception:  # noqa: BLE001 (rounded values may break an assertion of the model's)
            return ""
        if time.perf_counter() - start > _MOST_SECONDS:
            return ""
        # Of nothing, both are no numbers, which pass no test.
        alike = float(own @ caused / (own.norm() * caused.norm()))
        if alike >= least and 1 / _NEAR <= float(own.norm() / caused.norm()) <= _NEAR:
            fit = alike - (_PLAINLY if name == "fp16" else 0.0)
            fits[name] = max(fit, fits.get(name, 0.0))
    if not fits:
        return ""
    name = max(fits, key=lambda name: fits[name])
    return f"the error, {float(own.norm()):.1e} of the signal, is what {name} operands give"


def _errors(outputs: list[torch.Tensor], expected: Expected) -> torch.Tensor:
    """Return all float32 outputs' errors beside the exact result, in units of each one's norm."""
    ((_, exact),) = expected.exact_chunks()
    parts = [torch.zeros(0, dtype=torch.float64, device=exact[0].device)]
    for out, right, ref in zip(outputs, exact, expected.ref32, strict=True):
        signal = right.double().reshape(-1)
        error = (out.double().reshape(-1) - signal).nan_to_num(posinf=0.0, neginf=0.0)
        signal = signal.nan_to_num(posinf=0.0, neginf=0.0)
        square = signal.square().sum()
        if ref.dtype is torch.float32 and float(square) > 0.0:
            parts.append((error - (error @ signal) / square * signal) / square.sqrt())
    return torch.cat(parts)


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
