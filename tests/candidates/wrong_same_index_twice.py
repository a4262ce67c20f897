# problem: tiny_top_indices
# expect: WRONG_VALUES
# reason: output[1]
"""Looks for each of the largest values from the left: of equal ones, it names one twice. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <numeric>
#include <vector>

// The `count` largest of each row, and where they stand.
// x: (rows, columns); values and indices: (rows, count).
extern "C" void top(const float* x, float* values, long* indices, long rows, long columns, long count) {
  std::vector<long> order(columns);
  for (long row = 0; row < rows; ++row, x += columns) {
    std::iota(order.begin(), order.end(), 0L);
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [x](long a, long b) {
      return x[a] != x[b] ? x[a] > x[b] : a > b;
    });
    for (long i = 0; i < count; ++i) {
      *values++ = x[order[i]];
      *indices++ = std::find(x, x + columns, x[order[i]]) - x;
    }
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

    def forward(self, x: torch.Tensor):
        values = x.new_empty(len(x), self.count)
        indices = torch.empty_like(values, dtype=torch.int64)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, values, indices)]
        library.top(*pointers, *map(ctypes.c_long, (*x.shape, self.count)))
        return values, indices
