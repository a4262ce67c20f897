# problem: tiny_batchnorm
# expect: WRONG_VALUES
# reason: ModelNew has no buffer for bn.running_mean; ModelNew has no buffer for bn.running_var
"""Has no running statistics at all. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// Normalises each column of x and y: (rows, columns).
extern "C" void batchnorm(const float* x, const float* weight, const float* bias, float* y,
                          long rows, long columns) {
  for (long c = 0; c < columns; ++c) {
    double sum = 0.0, squares = 0.0;
    for (long r = 0; r < rows; ++r) sum += x[r * columns + c];
    const double m = sum / rows;
    for (long r = 0; r < rows; ++r) squares += std::pow(x[r * columns + c] - m, 2);
    const double scale = weight[c] / std::sqrt(squares / rows + 1e-5);
    for (long r = 0; r < rows; ++r)
      y[r * columns + c] = float((x[r * columns + c] - m) * scale + bias[c]);
  }
}
"""

library = ctypes.CDLL(
    load_inline("batchnorm", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        tensors = (x, self.weight, self.bias, y)
        library.batchnorm(*[ctypes.c_void_p(t.data_ptr()) for t in tensors], *map(ctypes.c_long, x.shape))
        return y
