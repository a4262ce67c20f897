# problem: tiny_lending
# expect: PASSED
# warning: `features`
"""Binds names of the reference's anew from their values there, for good and in a branch. PASSED."""

import ctypes

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


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


features = features * features
batch_size += 1
if not hasattr(torch, "empty_like"):
    get_inputs = None


class ModelNew(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        assert get_inputs()[0].shape == (7, width * width)
        self.divisor = features**0.25

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x) / self.divisor
