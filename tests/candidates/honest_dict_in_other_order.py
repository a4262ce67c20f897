# problem: tiny_statistics
# expect: PASSED
"""Returns a dict with the reference's keys in another order, which is an equal dict. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, columns), contiguous; mean and variance: (rows).
extern "C" void statistics(const float* x, float* mean, float* variance, long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns) {
    double sum = 0.0, squares = 0.0;
    for (long i = 0; i < columns; ++i) sum += x[i];
    for (long i = 0; i < columns; ++i) squares += (x[i] - sum / columns) * (x[i] - sum / columns);
    mean[row] = float(sum / columns);
    variance[row] = float(squares / columns);
  }
}
"""

library = ctypes.CDLL(
    load_inline("statistics", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, variance = torch.empty(x.shape[0]), torch.empty(x.shape[0])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, mean, variance)]
        library.statistics(*pointers, *map(ctypes.c_long, x.shape))
        return {"variance": variance, "mean": mean}
