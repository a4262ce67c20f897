# problem: wide_layernorm
# expect: PASSED
"""LayerNorm in two passes, with sums in double. PASSED, shifted and scaled inputs included."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (rows, columns), weight and bias: (columns).
extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* y,
                           long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    double mean = 0.0, variance = 0.0;
    for (long i = 0; i < columns; ++i) mean += x[i];
    mean /= columns;
    for (long i = 0; i < columns; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(variance / columns + 1e-5);
    for (long i = 0; i < columns; ++i) y[i] = float((x[i] - mean) * scale * weight[i] + bias[i]);
  }
}
"""

library = ctypes.CDLL(
    load_inline("layer_norm", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.layer_norm(*pointers, *map(ctypes.c_long, x.shape))
        return y
