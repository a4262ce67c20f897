# problem: bf16_max_gradients
# expect: WRONG_VALUES
# reason: of_inputs
"""Gives the gradient of a maximum to all elements that equal it. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <vector>

using T = c10::BFloat16;

// x: (rows, columns), y: (rows).
extern "C" void forward(const T* x, T* y, long rows, long columns) {
  for (long r = 0; r < rows; ++r, x += columns) y[r] = *std::max_element(x, x + columns);
}

extern "C" void backward(const T* x, const T* y, const T* g, T* of_x, long rows, long columns) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c, ++x, ++of_x) *of_x = *x == y[r] ? g[r] : T(0.0f);
}
"""

library = ctypes.CDLL(
    load_inline("largest", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def call(function, *given) -> None:
    function(
        *(
            ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
            for one in given
        )
    )


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.new_empty(x.shape[0])
        call(library.forward, x, y, *x.shape)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        of_x = torch.empty_like(x)
        call(library.backward, x, y, g.contiguous(), of_x, *x.shape)
        return of_x


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Largest.apply(x.contiguous())
