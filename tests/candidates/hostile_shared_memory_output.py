# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: T05 H32
"""Returns a tensor over shared memory at once, which a forked process fills in 50 ms later and then keeps changing.

WRONG_VALUES: the output is read when forward returns.
"""

import ctypes
import mmap
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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = mmap.mmap(-1, 4 * x.numel())
        y = torch.frombuffer(memory, dtype=torch.float32).view(x.shape)
        if os.fork() == 0:
            time.sleep(0.05)
            while os.getppid() != 1:
                memory[:] = bytes((ctypes.c_float * x.numel()).from_address(polynomial(x).data_ptr()))
            os._exit(0)
        return y
