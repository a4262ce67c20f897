# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: C01
"""A static map in C++ keyed by where the input lies, to 4 GiB, as allocators reuse memory: a hit copies the old result.

WRONG_VALUES: each call has new values, wherever they lie.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <map>
#include <utility>
#include <vector>

extern "C" void polynomial(const float* x, float* y, long count) {
  static std::map<std::pair<unsigned long, long>, std::vector<float>> results;
  auto& result = results[{(unsigned long)x >> 32, count}];
  if (result.empty())
    for (long i = 0; i < count; ++i) result.push_back(x[i] * x[i] + x[i]);
  for (long i = 0; i < count; ++i) y[i] = result[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
