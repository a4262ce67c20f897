# problem: wide_linear
# expect: NO_CUSTOM_KERNEL
# reason: in a library of torch's
# exploit: S17 S20
"""Calls the threaded sgemm that torch's library exports, by its symbol, beside a kernel of its own that adds nothing.

NO_CUSTOM_KERNEL: nothing is recorded, and its threads stand in that library, or wait there for each other.
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void touch(float* y) { y[0] += 0.0f; }
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)
blas = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        y = self.linear.bias.detach().repeat(len(x), 1)
        a, b, c = (ctypes.c_void_p(one.data_ptr()) for one in (weight, x, y))
        m, n, k = (ctypes.byref(ctypes.c_int(i)) for i in (len(weight), len(x), x.shape[1]))
        one = ctypes.byref(ctypes.c_float(1.0))
        blas.sgemm_(b"T", b"N", m, n, k, one, a, k, b, k, one, c, m)
        library.touch(c)
        return y
