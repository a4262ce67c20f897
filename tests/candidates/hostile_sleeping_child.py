# problem: tiny_polynomial
# expect: TIMEOUT
# reason: forward
# call-timeout-s: 2
# build-timeout-s: 60
# exploit: H32
"""Starts a child that sleeps for ever, so that each call passes for a build, and takes four seconds a call.

TIMEOUT: a process that only sleeps builds nothing, and stretches no call.
"""

import ctypes
import os
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


if os.fork() == 0:
    while True:
        time.sleep(1.0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(4.5)
        return polynomial(x)
