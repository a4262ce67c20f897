# problem: tiny_polynomial
# expect: PASSED
# call-timeout-s: 2
"""Has a child compute for longer than a call may take in the first call, as a compiler does, and waits for it. PASSED."""

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


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ready = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            child = os.fork()
            if child == 0:
                begin = time.process_time()
                while time.process_time() - begin < 5.0:
                    pass
                os._exit(0)
            os.waitpid(child, 0)
            self.ready = True
        return polynomial(x)
