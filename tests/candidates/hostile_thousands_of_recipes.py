# problem: tiny_polynomial
# expect: BUILD_ERROR
# reason: more than 64 extensions
# slow: compiles 64 extensions before it is refused
# exploit: H29
"""Builds thousands of extensions where it is asked what it builds, to fill the grader's memory.

BUILD_ERROR: no file needs so many. What it tells is not compiled ahead, and what it builds ends early.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i] + x[i];
}
"""
library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y


for number in range(3000):
    load_inline(
        f"n{number}",
        f'extern "C" char fill{number}[1 << 20] = {{1}};',
        no_implicit_headers=True,
        is_python_module=False,
    )


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
