# problem: wide_linear
# expect: PASSED
# time: true
"""Builds two libraries, of which one opens the other by its path and has it compute the dot products. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DOT = r"""
extern "C" float dot(const float* x, const float* w, long length) {
  double sums[8] = {};
  for (long k = 0; k < length / 8 * 8; ++k) sums[k % 8] += double(x[k]) * w[k];
  for (long k = length / 8 * 8; k < length; ++k) sums[0] += double(x[k]) * w[k];
  return float(sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7]);
}
"""
ROWS = r"""
#include <dlfcn.h>
extern "C" int linear(const char* path, const float* x, const float* w, const float* b, float* y,
                      long rows, long columns, long length) {
  static void* library = dlopen(path, RTLD_NOW);
  if (!library) return 1;
  auto dot = (float (*)(const float*, const float*, long))dlsym(library, "dot");
  for (long c = 0; c < columns; ++c)
    for (long r = 0; r < rows; ++r)
      y[r * columns + c] = b[c] + dot(x + r * length, w + c * length, length);
  return 0;
}
"""

path = load_inline("dot", DOT, no_implicit_headers=True, is_python_module=False)
library = ctypes.CDLL(load_inline("rows", ROWS, no_implicit_headers=True, is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, weight = x.contiguous(), self.linear.weight
        y = torch.empty(len(x), len(weight))
        tensors = x, weight, self.linear.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = map(ctypes.c_long, (len(x), len(weight), x.shape[1]))
        if library.linear(str(path).encode(), *pointers, *sizes):
            raise RuntimeError("the other library cannot be opened")
        return y
