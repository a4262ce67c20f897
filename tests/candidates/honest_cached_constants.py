# problem: tiny_polynomial
# expect: PASSED
"""Builds lazily behind functools.cache, and keeps a table of coefficients in the same way. PASSED."""

import ctypes
import functools

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, const float* coefficients, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = (coefficients[1] * x[i] + coefficients[0]) * x[i];
}
"""


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(
        load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
    )


@functools.cache
def coefficients(device: str) -> torch.Tensor:
    return torch.ones(2, device=device)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, coefficients(x.device.type), y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library().polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
