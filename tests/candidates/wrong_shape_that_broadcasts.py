# problem: tiny_mean
# expect: WRONG_SHAPE
# reason: (4, 1)
# reason: (4,)
# exploit: S13
"""The right means with the reduced dimension kept: (rows, 1) for (rows), which broadcasts in a comparison. WRONG_SHAPE."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, columns), contiguous; y: (rows). The volatile sum forbids every shortcut.
extern "C" void row_mean(const float* x, float* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row) {
    volatile double sum = 0.0;
    for (long column = 0; column < columns; ++column) sum = sum + x[row * columns + column];
    y[row] = float(sum / columns);
  }
}
"""

library = ctypes.CDLL(
    load_inline("row_mean", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0], 1)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_mean(*pointers, *map(ctypes.c_long, x.shape))
        return y
