# problem: tiny_gradients
# expect: RUNTIME_ERROR
# reason: record no gradient
"""A forward of its own, without a backward. RUNTIME_ERROR, in words that say what is missing."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x: (rows, depth), w: (columns, depth), b and s: (columns), t and y: (rows, columns).
extern "C" void forward(const float* x, const float* w, const float* b, const float* s, float* t,
                        float* y, long rows, long depth, long columns) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c, ++t, ++y) {
      float sum = b[c];
      for (long k = 0; k < depth; ++k) sum += x[r * depth + k] * w[c * depth + k];
      *t = std::tanh(sum);
      *y = *t * s[c];
    }
}
"""

library = ctypes.CDLL(load_inline("tanh", SOURCE, no_implicit_headers=True, is_python_module=False))


def call(function, *tensors: torch.Tensor) -> None:
    x, w = tensors[-1]
    sizes = x.shape[0], x.shape[1], w.shape[0]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors[:-1]]
    function(*pointers, *map(ctypes.c_long, sizes))


def tanh(x, w, b, s):
    t, y = (torch.empty(x.shape[0], w.shape[0]) for _ in range(2))
    call(library.forward, x, w, b, s, t, y, (x, w))
    return y


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tanh(x.contiguous(), self.linear.weight, self.linear.bias, self.scale)
