# problem: large_polynomial
# expect: PASSED
"""Has torch square, which takes half of the time and more, and adds in a kernel of its own. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void add(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += x[i];
}
"""

library = ctypes.CDLL(
    load_inline("add", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = x * x
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.add(*pointers, ctypes.c_long(x.numel()))
        return y
