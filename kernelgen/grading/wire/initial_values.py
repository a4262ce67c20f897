"""Digests of the values that constructors draw, by which renamed parameters are known again.

Reference and candidate are constructed under one seed, which is no secret. Where a candidate draws
as the reference does, equal values then mean the same parameter.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

import msgspec

from kernelgen.grading.wire.module_state import state_of

if TYPE_CHECKING:
    import torch

# Of a large tensor, so many elements at even distances speak for all.
_SAMPLES = 1024


class Initial(msgspec.Struct, frozen=True):
    """Digests of a tensor's elements in order, and in the order of its transposed copy.

    "" for what says nothing: a constant, such as a norm's ones, and what is no matrix's.
    """

    plain: str = ""
    turned: str = ""


def initial_values(module: torch.nn.Module) -> dict[str, Initial]:
    """Return the digests of a new module's tensors, by name."""
    return {
        name: Initial(_digest(tensor), _digest(tensor.t()) if _is_matrix(tensor) else "")
        for name, tensor in state_of(module)
    }


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and 1 not in tensor.shape  # noqa: PLR2004 (rows and columns)


def _digest(tensor: torch.Tensor) -> str:
    import torch

    count = tensor.numel()
    known = tensor.layout is torch.strided and tensor.device.type != "meta"
    if not (known and tensor.is_floating_point() and count > 1):
        return ""
    samples = min(count, _SAMPLES)
    flat = torch.arange(samples, device=tensor.device) * (count - 1) // (samples - 1)
    # Not by way of reshape, which would copy a transposed tensor.
    values = tensor[torch.unravel_index(flat, tensor.shape)].float().tolist()
    if min(values) == max(values):
        return ""
    return hashlib.sha256(array("f", values).tobytes()).hexdigest()[:32]
