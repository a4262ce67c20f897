# problem: tiny_softmax
# expect: WRONG_VALUES
# exploit: S02
"""1/columns for every output, the mean of the truth, and nowhere further from it than 4e-6. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (rows, columns), contiguous.
extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    for (long i = 0; i < columns; ++i) y[i] = 1.0f / columns;
  }
}
"""

library = ctypes.CDLL(
    load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.softmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
