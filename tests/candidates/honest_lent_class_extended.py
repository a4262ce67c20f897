# problem: tiny_lending
# expect: PASSED
"""Extends the reference's helper class under its own name, beside a star import of its own. PASSED."""

import ctypes

import torch
from torch.nn import *
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i] + x[i];
}
"""
library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


class Shrink(Shrink):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(polynomial(x))


class ModelNew(Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.shrink = Shrink(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shrink(x)
