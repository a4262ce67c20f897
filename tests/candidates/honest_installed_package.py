# problem: tiny_kernelbench
# expect: PASSED
"""Imports sympy, which torch has installed, on a KernelBench file, which allows that. PASSED."""

import ctypes

import sympy
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        library.polynomial(*pointers, ctypes.c_long(int(sympy.prod(x.shape))))
        return y
