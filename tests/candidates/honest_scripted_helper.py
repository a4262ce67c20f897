# problem: tiny_polynomial
# expect: PASSED
"""A scripted helper prepares the input and torch's garbage collection is off while its kernel runs. PASSED."""

import ctypes
import gc
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


def prepared(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous() if x.dim() > 0 else x.reshape(1)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    prepare = torch.jit.script(prepared)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gc.disable()
        try:
            return polynomial(prepare(x))
        finally:
            gc.enable()
