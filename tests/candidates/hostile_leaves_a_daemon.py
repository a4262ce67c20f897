# problem: tiny_polynomial
# expect: PASSED
# orphan: 86413.75
# exploit: H32
"""Right, and forks twice, so that the grandchild, in a session of its own, belongs to nobody.

PASSED, and that process is dead when the verdict is there.
"""

import ctypes
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "86413.75"])
    os._exit(0)
os.wait()

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
