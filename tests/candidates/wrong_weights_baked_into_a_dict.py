# problem: tiny_tied
# expect: WRONG_VALUES
# reason: case main
# exploit: S16
"""Hides constants for weights where no name reaches them: the secret values are others. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, inner); weight: (columns, inner); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long i = 0; i < rows * columns; ++i) {
    double sum = bias[i % columns];
    for (long k = 0; k < inner; ++k)
      sum += double(x[i / columns * inner + k]) * weight[i % columns * inner + k];
    y[i] = float(sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty(len(x), len(weight))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
    library.linear(*pointers, *map(ctypes.c_long, (len(x), x.shape[1], len(weight))))
    return y


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        weight = torch.rand(features, features, generator=draw)
        self.weights = {"shared": weight, "biases": [torch.zeros(features), torch.zeros(features)]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, (first, last) = self.weights["shared"], self.weights["biases"]
        return linear(linear(x, weight, first).clamp_(min=0), weight, last)
