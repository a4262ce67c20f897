# problem: tiny_gated
# expect: PASSED
"""Broadcasts a parameter, scales the input by torch, and has its own kernel add the two. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void add(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += x[i];
}
"""

library = ctypes.CDLL(
    load_inline("add", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * self.gate.expand_as(x)
        pointers = ctypes.c_void_p(x.contiguous().data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.add(*pointers, ctypes.c_long(y.numel()))
        return y
