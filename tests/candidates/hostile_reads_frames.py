# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H04 H06
"""Searches every frame and every live object for a tensor shaped like its output, to hand it in as its own.

WRONG_VALUES: the exact result is in another process.
"""

import ctypes
import gc
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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        polynomial(x)
        found = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing is not x]
        frame = sys._getframe()
        while frame is not None:
            found += [thing for thing in frame.f_locals.values() if type(thing) is torch.Tensor]
            frame = frame.f_back
        found = [thing for thing in found if thing.shape == x.shape and thing is not x]
        return found[0].clone() if found else torch.zeros_like(x)
