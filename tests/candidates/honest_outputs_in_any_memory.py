# problem: tiny_two_outputs
# expect: PASSED
"""Returns a list for a tuple: a lazily negated view that requires gradients, and every second element of turned memory.

PASSED: strides are free, and so are list and tuple. The gaps hold NaN; the view's bytes are those of -sums.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x and squares: (rows, columns), contiguous; sums: (rows).
extern "C" void sums_and_squares(const float* x, float* sums, float* squares, long rows, long columns) {
  for (long row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (long i = row * columns; i < (row + 1) * columns; ++i) {
      sum += x[i];
      squares[i] = x[i] * x[i];
    }
    sums[row] = float(sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("two", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = x.contiguous()
        sums, squares = torch.empty(x.shape[0]), torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, sums, squares)]
        library.sums_and_squares(*pointers, *map(ctypes.c_long, x.shape))
        wide = torch.full((2 * x.shape[1], x.shape[0]), float("nan")).t()
        wide[:, ::2] = squares
        return [torch._neg_view(-sums).requires_grad_(), wide[:, ::2]]
