# problem: tiny_mean
# expect: PASSED
# time: true
"""One row a thread, by OpenMP, whose threads wait for the next call. PASSED: waiting is not working."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void row_means(const float* x, float* y, long rows, long columns) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    double total = 0.0;
    for (long i = 0; i < columns; ++i) total += x[row * columns + i];
    y[row] = float(total / columns);
  }
}
"""

library = ctypes.CDLL(
    load_inline(
        "row_means",
        SOURCE,
        extra_cflags=["-O3", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
        no_implicit_headers=True,
        is_python_module=False,
    )
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(x.shape[0])
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape))
        return y
