# problem: tiny_biases
# expect: WRONG_VALUES
# reason: case main
# exploit: S16
"""Rebuilds the reference under the seed that it was constructed with: its secret values are others. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x and y: (rows, n); weight: (n, n); bias and shift: (n); contiguous.
extern "C" void biases(const float* x, const float* weight, const float* bias, const float* shift,
                       float* y, long rows, long n) {
  for (long i = 0; i < rows * n; ++i) {
    double sum = bias[i % n];
    for (long k = 0; k < n; ++k) sum += double(x[i / n * n + k]) * weight[i % n * n + k];
    y[i] = float((sum > 0.0 ? sum : 0.0) + shift[i % n]);
  }
}
"""

library = ctypes.CDLL(
    load_inline("biases", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        torch.manual_seed(torch.initial_seed())
        self.matmul = nn.Linear(features, features)
        self.bias = nn.Parameter(torch.randn(features))
        self.weight, self.linear_bias = (tensor.detach().clone() for tensor in self.matmul.parameters())
        self.custom_bias = self.bias.detach().clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.weight, self.linear_bias, self.custom_bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.biases(*pointers, *map(ctypes.c_long, x.shape))
        return y
