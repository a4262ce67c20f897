# problem: tiny_polynomial
# expect: PASSED
# time: true
# max-speedup: 0.01
# slow: each of its calls is
"""Right, and takes half a second for a few hundred elements. PASSED: slow is not wrong, and no trick either."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <chrono>

extern "C" void polynomial(const float* x, float* y, long count) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + std::chrono::milliseconds(500);
  do {
    for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
  } while (clock::now() < end);
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
