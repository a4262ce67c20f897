# problem: tiny_biases
# expect: PASSED
# maps: weight <- matmul.weight, transposed
# maps: linear_bias <- matmul.bias
# maps: custom_bias <- bias
"""Names that mislead and a square weight transposed: one seed draws what the reference draws. PASSED."""

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
    for (long k = 0; k < n; ++k) sum += double(x[i / n * n + k]) * weight[k * n + i % n];
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
        linear = nn.Linear(features, features)
        self.custom_bias = nn.Parameter(torch.randn(features))
        self.linear_bias = nn.Parameter(linear.bias.detach().clone())
        self.weight = nn.Parameter(linear.weight.detach().t().contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.weight, self.linear_bias, self.custom_bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.biases(*pointers, *map(ctypes.c_long, x.shape))
        return y
