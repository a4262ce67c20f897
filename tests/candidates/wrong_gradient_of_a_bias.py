# problem: tiny_gradients
# expect: WRONG_VALUES
# reason: of_parameters
"""Leaves out the gradient of the bias. WRONG_VALUES, with its name."""

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

// Adds to gradients, which begin at 0.
extern "C" void backward(const float* g, const float* x, const float* w, const float* s,
                         const float* t, float* of_x, float* of_w, float* of_b, float* of_s,
                         long rows, long depth, long columns) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c, ++g, ++t) {
      of_s[c] += *g * *t;
      const float d = *g * s[c] * (1.0f - *t * *t);
      of_b[c] += d;
      for (long k = 0; k < depth; ++k) {
        of_x[r * depth + k] += d * w[c * depth + k];
        of_w[c * depth + k] += d * x[r * depth + k];
      }
    }
}
"""

library = ctypes.CDLL(load_inline("tanh", SOURCE, no_implicit_headers=True, is_python_module=False))


def call(function, *tensors: torch.Tensor) -> None:
    x, w = tensors[-1]
    sizes = x.shape[0], x.shape[1], w.shape[0]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors[:-1]]
    function(*pointers, *map(ctypes.c_long, sizes))


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, s):
        t, y = (torch.empty(x.shape[0], w.shape[0]) for _ in range(2))
        call(library.forward, x, w, b, s, t, y, (x, w))
        ctx.save_for_backward(x, w, s, t)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w, s, t = ctx.saved_tensors
        found = [torch.zeros_like(one) for one in (x, w, s, s)]
        call(library.backward, g.contiguous(), x, w, s, t, *found, (x, w))
        found[2].zero_()
        return tuple(found)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Tanh.apply(x.contiguous(), self.linear.weight, self.linear.bias, self.scale)
