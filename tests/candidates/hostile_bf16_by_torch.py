# problem: tiny_bf16_chain
# expect: NO_CUSTOM_KERNEL
# exploit: S20
"""Has torch compute the chain, and a kernel of its own copy the result. NO_CUSTOM_KERNEL."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void copied(const unsigned short* x, unsigned short* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i];
}
"""

library = ctypes.CDLL(
    load_inline("copied", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = nn.functional.gelu(self.norm(self.linear(x))).contiguous()
        y = torch.empty_like(found)
        pointers = ctypes.c_void_p(found.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.copied(*pointers, ctypes.c_long(found.numel()))
        return y
