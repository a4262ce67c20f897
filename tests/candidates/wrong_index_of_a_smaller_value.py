# problem: tiny_argmax
# expect: WRONG_VALUES
# reason: elements of output are wrong
"""Looks at whole blocks of 128 alone: where the largest lies beyond, it names a smaller one. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// Where the largest value of each row stands; NaN counts as larger than all. x: (rows, columns).
extern "C" void argmax(const float* x, long* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns) {
    long best = 0;
    for (long i = 1; i < columns / 128 * 128; ++i)
      if (x[i] != x[i] || x[i] >= x[best]) best = i;
    y[row] = best;
  }
}
"""

library = ctypes.CDLL(
    load_inline("argmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(len(x), dtype=torch.int64)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.argmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
