# problem: tiny_polynomial
# expect: PASSED
"""Keeps one output buffer for each shape and writes every result into it. PASSED: it is right when forward returns."""

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
    def __init__(self) -> None:
        super().__init__()
        self.workspaces: dict[torch.Size, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = self.workspaces.setdefault(x.shape, torch.empty_like(x))
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
