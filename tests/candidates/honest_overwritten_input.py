# problem: overwritten_input
# expect: PASSED
# time: true
"""Writes into its input and returns it, as the reference does. PASSED: the memory that is looked at is the input's."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void affine(const float* x, float* y, long count, long again) {
  for (long time = 0; time < again; ++time)
    for (long i = 0; i < count; ++i) {
      const volatile float value = x[i] * 2.0f + 1.0f;
      y[i] = value;
    }
}
"""

library = ctypes.CDLL(
    load_inline("affine", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(x.data_ptr())
        library.affine(*pointers, ctypes.c_long(x.numel()), ctypes.c_long(1))
        return x
