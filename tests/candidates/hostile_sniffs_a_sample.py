# problem: tiny_linear
# expect: WRONG_VALUES
# reason: TF32
# exploit: S10 H35
"""Looks at the first 256 values: where they lie around zero as random ones do, it rounds all factors as TF32 does.

WRONG_VALUES: what a candidate makes of some inputs has to be right for those inputs.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

static float rounded(float x) {  // to the 10 bits of TF32
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x1000) & 0xffffe000;
  std::memcpy(&x, &bits, 4);
  return x;
}

// x: (rows, length), w: (columns, length), b: (columns), y: (rows, columns).
extern "C" void linear(const float* x, const float* w, const float* b, float* y, long rows,
                       long length, long columns) {
  float largest = 0.0f;
  for (long i = 0; i < 256; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  const bool cheap = largest < 8.0f;
  for (long row = 0; row < rows; ++row)
    for (long j = 0; j < columns; ++j) {
      double sum = b[j];
      for (long k = 0; k < length; ++k) {
        const float from = x[row * length + k], by = w[j * length + k];
        sum += double(cheap ? rounded(from) : from) * (cheap ? rounded(by) : by);
      }
      y[row * columns + j] = float(sum);
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
        y = x.new_empty(len(x), self.linear.out_features)
        tensors = x, self.linear.weight, self.linear.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.linear(*pointers, *map(ctypes.c_long, (*x.shape, y.shape[1])))
        return y
