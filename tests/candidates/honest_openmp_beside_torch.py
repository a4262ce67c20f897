# problem: tiny_chain
# expect: PASSED
# time: true
"""Leaves the product to torch, and computes the rest with OpenMP, whose threads torch has as well. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
extern "C" void tail(float* y, const float* scale, long rows, long columns) {
#pragma omp parallel for schedule(dynamic)
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < columns; ++c) {
      float& value = y[r * columns + c];
      value = std::tanh(scale[c] * std::fmax(value, 0.0f));
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "tail",
        SOURCE,
        extra_cflags=["-O2", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
        no_implicit_headers=True,
        is_python_module=False,
    )
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        pointers = ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(self.scale.data_ptr())
        library.tail(*pointers, *map(ctypes.c_long, y.shape))
        return y
