# problem: tiny_polynomial
# expect: WRONG_VALUES
# reason: long_rows
# reason: is what bf16 operands give
# exploit: S10
"""Rounds its input to bf16 before it computes. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstring>

// Round to the nearest float that has only 7 bits of mantissa, as bf16 has.
static float narrow(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x8000u) & 0xffff0000u;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = narrow(x[i]) * narrow(x[i]) + narrow(x[i]);
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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
