# problem: tiny_linear
# expect: PASSED
"""Dot products of 1024 terms, one fp32 sum after the other: no better than fp32, and no worse. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, inner); weight: (columns, inner); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long i = 0; i < rows * columns; ++i) {
    const long row = i / columns, column = i % columns;
    float sum = 0.0f;
    for (long k = 0; k < inner; ++k) sum += x[row * inner + k] * weight[column * inner + k];
    y[i] = sum + bias[column];
  }
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.empty(x.shape[0], weight.shape[0])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
        library.linear(*pointers, *map(ctypes.c_long, (*x.shape, weight.shape[0])))
        return y
