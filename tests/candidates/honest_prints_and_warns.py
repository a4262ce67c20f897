# problem: tiny_polynomial
# expect: PASSED
"""Right, and talkative: prints from Python and from C, a warning, and writes to standard error. PASSED."""

import ctypes
import sys
import warnings

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

print("imported")

SOURCE = r"""
#include <cstdio>
extern "C" void polynomial(const float* x, float* y, long count) {
  std::printf("%ld elements\n", count);
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("forward of", tuple(x.shape))
        warnings.warn("a warning from forward")
        sys.stderr.write("to standard error\n")
        return polynomial(x)
