# problem: tiny_polynomial
# expect: PASSED
"""Has the problem's functions with a seed and sizes of its own, and calls itself on them once at the start. PASSED."""

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


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


def get_inputs() -> list[torch.Tensor]:
    torch.manual_seed(1234)
    return [torch.randn(2, 5)]


def get_init_inputs() -> list[object]:
    return []


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self(*get_inputs())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
