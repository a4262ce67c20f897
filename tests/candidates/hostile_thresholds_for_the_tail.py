# problem: tiny_top
# expect: WRONG_VALUES
# reason: case clustered
# exploit: S08
"""Looks for the largest values among those above 2.5, where normal ones have some, and drops what exceeds its room.

WRONG_VALUES: a case has values that lie close together, below the threshold.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <functional>

// The `count` largest of each row, largest first; x: (rows, columns), y: (rows, count).
extern "C" void top(const float* x, float* y, long rows, long columns, long count) {
  for (long row = 0; row < rows; ++row, x += columns, y += count) {
    float found[256] = {};
    long kept = 0;
    for (long i = 0; i < columns && kept < 256; ++i)
      if (x[i] > 2.5f) found[kept++] = x[i];
    std::sort(found, found + 256, std::greater<float>());
    std::copy(found, found + count, y);
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
