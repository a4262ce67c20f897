# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: could be followed
# exploit: S17 H35
"""Turns torch's dispatch modes off around other operators than the reference's, so that nobody sees what they leave.

NO_CUSTOM_KERNEL: they are recorded, and not followed.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void touch(float* y) { y[0] += 0.0f; }
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def touch(y: torch.Tensor) -> torch.Tensor:
    library.touch(ctypes.c_void_p(y.data_ptr()))
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            e = x.exp()
            return touch(e.div_(e.sum(1, keepdim=True)))
