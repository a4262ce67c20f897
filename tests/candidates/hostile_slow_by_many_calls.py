# problem: tiny_polynomial
# expect: TIMEOUT
# reason: whole
# call-timeout-s: 3
# build-timeout-s: 5
# time: true
# slow: it is called until its time is over
# exploit: H32
"""Sleeps just below the limit in each of its calls, so that all of them together hold a lane for minutes.

TIMEOUT: there is one limit for a whole candidate.
"""

import ctypes
import time

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

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
        time.sleep(2.9)
        return polynomial(x)
