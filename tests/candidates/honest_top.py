# problem: tiny_top
# expect: PASSED
"""Sorts as much of each row as is asked for. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <functional>
#include <vector>

// The `count` largest of each row, largest first; x: (rows, columns), y: (rows, count).
extern "C" void top(const float* x, float* y, long rows, long columns, long count) {
  for (long row = 0; row < rows; ++row, x += columns, y += count) {
    std::vector<float> values(x, x + columns);
    std::partial_sort(values.begin(), values.begin() + count, values.end(), std::greater<float>());
    std::copy(values.begin(), values.begin() + count, y);
  }
}
"""

library = ctypes.CDLL(
    load_inline("top", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(len(x), self.count)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.top(*pointers, *map(ctypes.c_long, (*x.shape, self.count)))
        return y
