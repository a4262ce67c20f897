# problem: tiny_softmax
# expect: PASSED
"""Leaves the maximum and the division to torch, and has a kernel of its own between them, in memory that it keeps. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

extern "C" void exponentials(const float* x, const float* most, float* y, double* sums, long rows,
                             long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    sums[row] = 0.0;
    for (long i = 0; i < columns; ++i) sums[row] += y[i] = std::exp(x[i] - most[row]);
  }
}
"""

library = ctypes.CDLL(
    load_inline("exponentials", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sums = torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        if len(self.sums) != len(x):
            self.sums = torch.empty(len(x), dtype=torch.float64)
        y = torch.empty_like(x)
        tensors = x, x.amax(dim=1), y, self.sums
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.exponentials(*pointers, *map(ctypes.c_long, x.shape))
        return (y / self.sums[:, None]).float()
