# problem: scale
"""A matrix times a number, in Triton: kernelgen grade scale_triton.py."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024


@triton.jit
def scale_kernel(a, out, factor, count, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    tl.store(out + at, tl.load(a + at, mask=inside) * factor, mask=inside)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, s: float) -> torch.Tensor:  # noqa: N803
        a = A.contiguous()
        out = torch.empty_like(a)
        if a.numel():
            blocks = triton.cdiv(a.numel(), BLOCK)
            scale_kernel[(blocks,)](a, out, s, a.numel(), block=BLOCK)
        return out
