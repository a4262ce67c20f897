# problem: fp16_norm_gradients
# expect: PASSED
"""Mean and variance of each row in one pass, saved in fp32 for backward. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <vector>

using T = c10::Half;

// x and y: (rows, columns), w and b: (columns), stats: (rows, 2).
extern "C" void forward(const T* x, const T* w, const T* b, float* stats, T* y, long rows,
                        long columns) {
  for (long r = 0; r < rows; ++r, x += columns, y += columns, stats += 2) {
    float mean = 0, squares = 0;
    for (long c = 0; c < columns; ++c) {
      const float off = float(x[c]) - mean;
      mean += off / (c + 1);
      squares += off * (float(x[c]) - mean);
    }
    stats[0] = float(mean), stats[1] = float(1 / std::sqrt(squares / columns + 1e-5f));
    for (long c = 0; c < columns; ++c)
      y[c] = T((float(x[c]) - stats[0]) * stats[1] * float(w[c]) + float(b[c]));
  }
}

// Adds to the gradients of w and b, which begin at 0.
extern "C" void backward(const T* x, const T* w, const float* stats, const T* g, T* of_x,
                         float* of_w, float* of_b, long rows, long columns) {
  for (long r = 0; r < rows; ++r, x += columns, g += columns, of_x += columns, stats += 2) {
    float ups = 0, products = 0;
    for (long c = 0; c < columns; ++c) {
      const float normal = (float(x[c]) - stats[0]) * stats[1], up = float(g[c]) * float(w[c]);
      ups += up;
      products += up * normal;
      of_w[c] += float(g[c]) * normal;
      of_b[c] += float(g[c]);
    }
    for (long c = 0; c < columns; ++c) {
      const float normal = (float(x[c]) - stats[0]) * stats[1], up = float(g[c]) * float(w[c]);
      of_x[c] = T(stats[1] * (up - (ups + normal * products) / columns));
    }
  }
}
"""

library = ctypes.CDLL(
    load_inline("norm", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def call(function, *given) -> None:
    function(
        *(
            ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
            for one in given
        )
    )


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        y, stats = torch.empty_like(x), torch.empty(x.shape[0], 2)
        call(library.forward, x, w, b, stats, y, *x.shape)
        ctx.save_for_backward(x, w, stats)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w, stats = ctx.saved_tensors
        of_x, of_w, of_b = torch.empty_like(x), torch.zeros(w.shape), torch.zeros(w.shape)
        call(library.backward, x, w, stats, g.contiguous(), of_x, of_w, of_b, *x.shape)
        return of_x, of_w.half(), of_b.half()


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Norm.apply(x.contiguous(), self.norm.weight, self.norm.bias)
