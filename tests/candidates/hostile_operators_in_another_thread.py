# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: could be followed
# exploit: S17 S20
"""Has another thread call operators that the reference does not, beside a kernel of its own that adds nothing.

NO_CUSTOM_KERNEL: what is recorded of a followed call, and was not followed, is no own kernel's.
"""

import ctypes
from concurrent.futures import ThreadPoolExecutor

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


pool = ThreadPoolExecutor(1)


@torch.no_grad()
def by_torch(x: torch.Tensor) -> torch.Tensor:
    e = x.exp()
    return e / e.sum(1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return touch(pool.submit(by_torch, x).result())
