# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# exploit: S22 S17
"""Lets TorchScript run the reference's expression, with a compiled kernel that nothing calls. NO_CUSTOM_KERNEL."""

import ctypes
import warnings

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


def reference(x: torch.Tensor) -> torch.Tensor:
    return x * x + x


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(reference)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scripted(x)
