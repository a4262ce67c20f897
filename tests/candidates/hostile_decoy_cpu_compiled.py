# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: Compiled
# exploit: S22
# slow: torch.compile makes and compiles a kernel
"""Lets torch.compile make the kernel, and carries a C++ function that nothing depends on.

NO_CUSTOM_KERNEL: what torch.compile makes is not the candidate's own.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void touch(float* y) { y[0] = y[0]; }
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)
softmax = torch.compile(lambda x: torch.softmax(x, dim=1))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = softmax(x)
        library.touch(ctypes.c_void_p(y.data_ptr()))
        return y
