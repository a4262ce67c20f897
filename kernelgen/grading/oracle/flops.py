"""Counting the operations of a reference's matrix products, convolutions and attention.

PyTorch's own counter sees each operator with its shapes: 2*m*n*k for a product, the same for the
product that a convolution or attention is. Elementwise work and reductions count as nothing: their
time is nothing beside that of the bytes. What the counter has no formula for (torch.mv, torch.dot,
nn.Bilinear, FFTs) counts as nothing too, so that the number is never too large for that reason.
"""

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelgen.errors import in_one_line
from kernelgen.grading.wire.device_errors import is_device_loss
from kernelgen.grading.wire.module_state import state_of
from kernelgen.grading.wire.values import tensors_of

# Of the types that torch multiplies matrices of; others count as fp32.
_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_USUAL_BITS = 24


class Products(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of a model's matrix products.

    Attributes:
        flops: operations, a multiply and an add counted as two.
        operand_bits: significant bits of the narrowest float among inputs and parameters.
        note: why they could not be counted, or "".
    """

    flops: int = 0
    operand_bits: int = _USUAL_BITS
    note: str = ""


class _NoTracker(contextlib.nullcontext[None]):
    parents: ClassVar = {"Global"}


def products_of(model: torch.nn.Module, inputs: list[Any]) -> Products:
    """Count what one call of a model takes; raises whatever the model raises.

    On `meta` nothing is computed.
    """
    tensors = [*tensors_of(inputs), *(tensor for _, tensor in state_of(model))]
    bits = [_BITS.get(t.dtype, _USUAL_BITS) for t in tensors if t.is_floating_point()]
    counter = FlopCounterMode(display=False)
    # Hooks that say which layer an operator belongs to, and that a backward trips over.
    counter.mod_tracker = _NoTracker()  # type: ignore[assignment]
    with torch.no_grad(), counter:
        model(*inputs)
    return Products(
        flops=int(counter.get_total_flops()), operand_bits=min(bits, default=_USUAL_BITS)
    )


def products_or_none(model: torch.nn.Module, make_inputs: Callable[[], list[Any]]) -> Products:
    """Count what a call takes by running it; a model that cannot be counted has a note instead."""
    try:
        return products_of(model, make_inputs())
    except Exception as error:
        if is_device_loss(error):
            raise
        return Products(
            note="the operations of its matrix products could not be counted; its limit counts "
            f"only the bytes: {in_one_line(error)}"
        )
