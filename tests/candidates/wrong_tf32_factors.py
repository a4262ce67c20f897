# problem: tiny_linear
# expect: WRONG_VALUES
# reason: main
# reason: is what TF32 operands give
# exploit: S10
"""Rounds the factors of its dot products to TF32. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstring>

// Round to the nearest float that has only 10 bits of mantissa, as TF32 has.
static float narrow(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000u) & 0xffffe000u;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// x: (rows, inner); weight: (columns, inner); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long i = 0; i < rows * columns; ++i) {
    const long row = i / columns, column = i % columns;
    float sum = 0.0f;
    for (long k = 0; k < inner; ++k) sum += narrow(x[row * inner + k]) * narrow(weight[column * inner + k]);
    y[i] = sum + bias[column];
  }
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.empty(x.shape[0], weight.shape[0])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
        library.linear(*pointers, *map(ctypes.c_long, (*x.shape, weight.shape[0])))
        return y
