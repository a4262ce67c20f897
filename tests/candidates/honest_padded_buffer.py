# problem: tiny_polynomial
# expect: PASSED
"""Keeps a padded buffer for each shape, and fills it in each call. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x lies in rows of `pitch`, y in rows of `columns`: y = x * x + x.
extern "C" void polynomial(const float* x, float* y, long rows, long columns, long pitch) {
  for (long row = 0; row < rows; ++row)
    for (long i = 0; i < columns; ++i) {
      const float value = x[row * pitch + i];
      y[row * columns + i] = value * value + value;
    }
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def polynomial(padded: torch.Tensor, columns: int) -> torch.Tensor:
    y = padded.new_empty(len(padded), columns)
    pointers = ctypes.c_void_p(padded.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, *map(ctypes.c_long, (*y.shape, padded.shape[1])))
    return y


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.buffers = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        if x.shape not in self.buffers:
            self.buffers[x.shape] = x.new_zeros(rows, columns + -columns % 16)
        padded = self.buffers[x.shape]
        padded[:, :columns] = x
        return polynomial(padded, columns)
