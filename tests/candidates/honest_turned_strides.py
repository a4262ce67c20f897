# problem: tiny_turned
# expect: PASSED
"""Copies its input as it lies, and returns a transposed view of the copy. PASSED: strides are free, memory is its own."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void copied(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i];
}
"""

library = ctypes.CDLL(
    load_inline("copied", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.copied(*pointers, ctypes.c_long(x.numel()))
        return y.t()
