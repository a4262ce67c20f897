# problem: tiny_polynomial
# expect: PASSED
"""Has its loop over rows in C++ call Python back, which chooses the kernel in C++ for each row. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void row(const float* x, float* y, long columns) {
  for (long c = 0; c < columns; ++c) y[c] = x[c] * x[c] + x[c];
}
extern "C" void rows(const float* x, float* y, long rows, long columns,
                     void (*call)(const float*, float*, long)) {
  for (long r = 0; r < rows; ++r) call(x + r * columns, y + r * columns, columns);
}
"""

library = ctypes.CDLL(
    load_inline("rows", SOURCE, no_implicit_headers=True, is_python_module=False)
)
library.row.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
def one_row(x: int, y: int, columns: int) -> None:
    library.row(x, y, columns)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.rows(*pointers, *map(ctypes.c_long, (x.numel() // x.shape[-1], x.shape[-1])), one_row)
        return y
