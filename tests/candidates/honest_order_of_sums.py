# problem: tiny_mean
# expect: PASSED
"""Adds up in another order at every call, as atomics do: other bits, all within rounding. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, columns), contiguous; y: (rows). Eight partial sums, the calls taking turns with the
// direction in which they walk.
extern "C" void mean(const float* x, float* y, long rows, long columns) {
  static long calls = 0;
  const bool backwards = calls++ % 2 == 1;
  for (long row = 0; row < rows; ++row) {
    float sums[8] = {};
    for (long k = 0; k < columns; ++k) {
      const long column = backwards ? columns - 1 - k : k;
      sums[k % 8] += x[row * columns + column];
    }
    float sum = 0.0f;
    for (float part : sums) sum += part;
    y[row] = sum / columns;
  }
}
"""

library = ctypes.CDLL(load_inline("mean", SOURCE, no_implicit_headers=True, is_python_module=False))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        library.mean(*pointers, *map(ctypes.c_long, x.shape))
        return y
