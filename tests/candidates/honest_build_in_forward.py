# problem: tiny_polynomial
# expect: PASSED
"""The extension is compiled by the first call of forward. PASSED."""

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
    library = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if ModelNew.library is None:
            path = load_inline("lazy", SOURCE, no_implicit_headers=True, is_python_module=False)
            ModelNew.library = ctypes.CDLL(path)
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        ModelNew.library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
