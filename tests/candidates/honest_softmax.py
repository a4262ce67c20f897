# problem: tiny_softmax
# expect: PASSED
"""A softmax over 262144 columns, whose outputs are near 4e-6. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (rows, columns), contiguous.
extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    double sum = 0.0;
    for (long i = 0; i < columns; ++i) sum += std::exp(double(x[i]));
    for (long i = 0; i < columns; ++i) y[i] = float(std::exp(double(x[i])) / sum);
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
