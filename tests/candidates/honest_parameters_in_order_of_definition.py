# problem: tiny_chain
# expect: PASSED
# maps: p <- linear.weight
# maps: q <- linear.bias
# maps: r <- scale
"""Plain parameters whose names tell nothing, in the order in which the reference's __init__ makes them. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (rows, n); kernel: (n, n); offset and factor: (n); contiguous.
extern "C" void chain(const float* x, const float* kernel, const float* offset, const float* factor,
                      float* y, long rows, long n) {
  for (long i = 0; i < rows * n; ++i) {
    double sum = offset[i % n];
    for (long k = 0; k < n; ++k) sum += double(x[i / n * n + k]) * kernel[i % n * n + k];
    y[i] = float(std::tanh(factor[i % n] * (sum > 0.0 ? sum : 0.0)));
  }
}
"""

library = ctypes.CDLL(
    load_inline("chain", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.empty(features, features))
        self.q = nn.Parameter(torch.empty(features))
        self.r = nn.Parameter(torch.empty(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.p, self.q, self.r, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.chain(*pointers, *map(ctypes.c_long, x.shape))
        return y
