# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: C01
"""Keeps a padded copy of each input, and takes the copy where address and `_version` are those of before.

WRONG_VALUES: one call of each case finds other values in the memory of the last one, uncounted as by a kernel.
"""

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
        self.kept = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = x.data_ptr(), x._version, x.shape, x.stride()
        if place not in self.kept:
            padding = -x.shape[1] % 16
            # With the input itself, so that its memory stays its own.
            self.kept[place] = nn.functional.pad(x, (0, padding)).contiguous(), x
        return polynomial(self.kept[place][0], x.shape[1])
