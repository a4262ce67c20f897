# problem: tiny_tied
# expect: PASSED
"""Keeps a weight that two layers share twice, by other names: both began with its values. PASSED."""

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
        encoder, decoder = nn.Linear(features, features), nn.Linear(features, features)
        self.first = nn.Parameter(encoder.weight.detach().clone())
        self.last = nn.Parameter(encoder.weight.detach().clone())
        self.first_bias, self.last_bias = encoder.bias, decoder.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(linear(x, self.first, self.first_bias).clamp_(min=0), self.last, self.last_bias)
