# problem: tiny_mean
# expect: WRONG_VALUES
# exploit: M01
"""Looks through newly allocated, never written memory for a plausible result that a reference may have left there.

WRONG_VALUES: no reference ever ran in its process.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// The means of rows, a thousand times over: a tenth of a second that no clock can miss.
extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  for (int again = 0; again < 1000; ++again)
    for (long row = 0; row < rows; ++row) {
      volatile double total = 0.0;
      for (long i = 0; i < columns; ++i) total = total + x[row * columns + i];
      y[row] = float(total / columns);
    }
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def row_means(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.row_means(*pointers, *map(ctypes.c_long, x.shape))
    return y


def plausible(y: torch.Tensor) -> bool:
    return bool(((y > 0.45) & (y < 0.55)).all())


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [torch.empty(x.shape[0]) for _ in range(1000)]
        return next((y.clone() for y in found if plausible(y)), torch.full((x.shape[0],), 0.5))
