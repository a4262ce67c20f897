# problem: tiny_polynomial
# expect: PASSED
# time: true
"""Writes the machine code of its kernel as it runs, into memory of no file, where there is an x86. PASSED."""

import ctypes
import mmap
import platform

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# void polynomial(const float* x, float* y, long count): one element a turn, of at least one.
CODE = bytes.fromhex("f30f1007 0f28c8 f30f59c8 f30f58c8 f30f110e 4883c704 4883c604 48ffca 75e0 c3")
SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

if platform.machine() == "x86_64":
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    polynomial = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)(address)
else:
    polynomial = ctypes.CDLL(
        load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
    ).polynomial


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
