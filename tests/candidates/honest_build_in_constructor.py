# problem: tiny_polynomial
# expect: PASSED
"""The extension is compiled by the constructor. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        path = load_inline("built", SOURCE, no_implicit_headers=True, is_python_module=False)
        self.library = ctypes.CDLL(path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        self.library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
