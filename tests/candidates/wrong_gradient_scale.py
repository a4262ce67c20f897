# problem: bf16_gradients
# expect: WRONG_VALUES
# reason: of_
# exploit: S26
"""Its gradients are 1 % too large, 2 roundings of bfloat16. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/util/BFloat16.h>

#include <cmath>

using T = c10::BFloat16;

// x: (rows, depth), w: (columns, depth), b and s: (columns), t and y: (rows, columns).
extern "C" void forward(const T* x, const T* w, const T* b, const T* s, float* t, T* y, long rows,
                        long depth, long columns) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c, ++t, ++y) {
      float sum = b[c];
      for (long k = 0; k < depth; ++k) sum += float(x[r * depth + k]) * float(w[c * depth + k]);
      *t = std::tanh(sum);
      *y = *t * s[c];
    }
}

// Adds to gradients, which begin at 0.
extern "C" void backward(const T* x, const T* w, const T* b, const T* s, const float* t,
                         const T* g, float* of_x, float* of_w, float* of_b, float* of_s,
                         long rows, long depth, long columns) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c) {
      const float tanh = t[r * columns + c], up = g[r * columns + c] * 1.01f;
      const float d = up * s[c] * (1 - tanh * tanh);
      for (long k = 0; k < depth; ++k) of_x[r * depth + k] += d * w[c * depth + k];
      of_s[c] += up * tanh;
      of_b[c] += d;
      for (long k = 0; k < depth; ++k) of_w[c * depth + k] += d * x[r * depth + k];
    }
}
"""

library = ctypes.CDLL(load_inline("tanh", SOURCE, no_implicit_headers=True, is_python_module=False))


def call(function, x: torch.Tensor, w: torch.Tensor, *others: torch.Tensor) -> None:
    pointers = [ctypes.c_void_p(one.data_ptr()) for one in (x, w, *others)]
    function(*pointers, *map(ctypes.c_long, (*x.shape, w.shape[0])))


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, s):
        y = x.new_empty(x.shape[0], w.shape[0])
        t = torch.empty(y.shape)
        call(library.forward, x, w, b, s, t, y)
        ctx.save_for_backward(x, w, b, s, t)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w, b, s, t = ctx.saved_tensors
        found = [torch.zeros_like(one, dtype=torch.float32) for one in (x, w, b, s)]
        call(library.backward, x, w, b, s, t, g.contiguous(), *found)
        return tuple(one.bfloat16() for one in found)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        linear = self.linear
        return Tanh.apply(x.contiguous(), linear.weight, linear.bias, self.scale)
