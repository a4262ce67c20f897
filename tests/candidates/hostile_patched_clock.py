# problem: tiny_polynomial
# expect: PASSED
# time: true
# max-speedup: 20
# exploit: T10
"""Right, and makes Python's clock run a thousand times too slow, so that every call seems to take no time.

PASSED, with true times: the host took its clock by reference before the candidate was imported.
"""

import ctypes
import time

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

real = time.perf_counter
time.perf_counter = lambda: real() / 1000.0

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
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
        return polynomial(x)
