# problem: fp16_gather
# expect: WRONG_VALUES
# reason: of_inputs
"""Writes gradients where it should add them: of rows taken twice it has one. WRONG_VALUES."""

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

// x: (rows, columns), index and sums: (taken), w and shift: (columns), y: (columns, taken).
extern "C" void forward(const T* x, const long* index, const T* w, const T* shift, T* y, T* sums,
                        long taken, long columns) {
  for (long r = 0; r < taken; ++r) {
    float sum = 0;
    for (long c = 0; c < columns; ++c) {
      const float product = float(x[index[r] * columns + c]) * float(w[c]);
      sum += product;
      y[c * taken + r] = T(product + float(shift[c]));
    }
    sums[r] = T(sum);
  }
}

// g is laid out like y, as its strides say, h like sums. Gradients begin at 0.
extern "C" void backward(const T* x, const long* index, const T* w, const T* g, const T* h,
                         float* of_x, float* of_w, float* of_shift, long taken, long columns,
                         long over_columns, long over_taken) {
  for (long r = taken - 1; r >= 0; --r)
    for (long c = 0; c < columns; ++c) {
      const float of_y = g[c * over_columns + r * over_taken], up = of_y + float(h[r]);
      of_x[index[r] * columns + c] = up * float(w[c]);
      of_w[c] += up * float(x[index[r] * columns + c]);
      of_shift[c] += of_y;
    }
}
"""

library = ctypes.CDLL(
    load_inline("gather", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def call(function, *given) -> None:
    function(
        *(
            ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
            for one in given
        )
    )


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index, unused, weight, shift):
        y, sums = x.new_empty(x.shape[1], len(index)), x.new_empty(len(index))
        call(library.forward, x, index, weight, shift, y, sums, len(index), x.shape[1])
        ctx.save_for_backward(x, index, weight)
        return y, sums

    @staticmethod
    def backward(ctx, g, h):
        x, index, weight = ctx.saved_tensors
        of_x, of_w = torch.zeros(x.shape), torch.zeros(weight.shape)
        of_shift = torch.zeros(len(weight), 1)
        given = x, index, weight, g, h.contiguous(), of_x, of_w, of_shift
        call(library.backward, *given, len(index), x.shape[1], *g.stride())
        # Autograd rounds what is of another type than its input.
        return of_x, None, None, of_w, of_shift


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.shift = nn.Parameter(torch.zeros(columns, 1))

    def forward(self, x: torch.Tensor, index: torch.Tensor, unused: torch.Tensor):
        return Gather.apply(x.contiguous(), index.contiguous(), unused, self.weight, self.shift)
