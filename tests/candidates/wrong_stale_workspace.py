# problem: tiny_mean
# expect: WRONG_VALUES
# reason: the same inputs gave values that agree one call before
# reason: a race between threads
"""Adds to sums that it keeps and never sets back to zero: right once, wrong after. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, columns), contiguous; y: (rows).
extern "C" void mean(const float* x, float* y, long rows, long columns) {
  static float sums[64] = {};
  for (long row = 0; row < rows; ++row) {
    float parts[8] = {};
    for (long k = 0; k < columns; ++k) parts[k % 8] += x[row * columns + k];
    for (float part : parts) sums[row] += part;
    y[row] = sums[row] / columns;
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
