# problem: tiny_mean
# expect: WRONG_VALUES
# exploit: S02 S07
"""The mean of the first 99 % of each row, off by a few ten-thousandths. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row) {
    const long count = columns - columns / 100;
    double total = 0.0;
    for (long i = 0; i < count; ++i) total += x[row * columns + i];
    y[row] = float(total / count);
  }
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0])
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape))
        return y
