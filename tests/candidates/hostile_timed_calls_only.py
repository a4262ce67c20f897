# problem: tiny_polynomial
# expect: WRONG_VALUES
# reason: timed calls are verified
# time: true
# exploit: T23 H04
"""Reads in the host's frame whether a call is timed, and computes half of the elements if so.

WRONG_VALUES: timed calls are verified like the others.
"""

import ctypes
import sys

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


def is_timed() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if getattr(frame.f_locals.get("message"), "timed", False):
            return True
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not is_timed():
            return polynomial(x)
        y = torch.zeros_like(x)
        y[:3] = polynomial(x[:3])
        return y
