# problem: tiny_kernelbench
# expect: PASSED
# time: true
# without-gpu: NO_DEVICE
"""A Triton kernel on a KernelBench file, which allows what is installed. PASSED, without a word on the import."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def polynomial_kernel(x, y, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < count)
    tl.store(y + at, value * value + value, mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        polynomial_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), block=256)
        return y
