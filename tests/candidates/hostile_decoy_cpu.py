# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# reason: mul
# reason: aten
# exploit: S20
"""Calls its own function on one element, and lets torch compute the result.

NO_CUSTOM_KERNEL: forward calls torch's multiplication and addition on all that the reference calls
them on.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.mul(x, x).add_(x)
        library.polynomial(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), 1)
        return y
