# problem: tiny_polynomial
# expect: PASSED
"""On a GPU this would be a __global__ kernel, given as cuda_sources; it is written for a CPU. PASSED: remarks are no source."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# Neither is this: import triton, __global__ void polynomial(float*).
SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", SOURCE, cuda_sources=None, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
