"""`Block`: a run of one output's elements, what is compared at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import torch


class Block(msgspec.Struct, frozen=True):
    """A run of elements of one output, as flat tensors of one length.

    Attributes:
        start: flat index of the first one.
        out: the candidate's values.
        exact: the exact values.
        ref: the pinned fp32 reference's values.
    """

    start: int
    out: torch.Tensor
    exact: torch.Tensor
    ref: torch.Tensor
