# problem: tiny_polynomial
# expect: WRONG_STRUCTURE
# reason: Agreeable
# exploit: H01
"""Returns an object that says it is equal, close and finite whatever it is compared with. WRONG_STRUCTURE."""

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


class Agreeable(float):
    shape, dtype = torch.Size([6, 37]), torch.float32

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        polynomial(x)
        return Agreeable()
