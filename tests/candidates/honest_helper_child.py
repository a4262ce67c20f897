# problem: tiny_polynomial
# expect: PASSED
"""Starts a helper process that lives on, and has it compute in shared memory in each call. PASSED."""

import ctypes
import os

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


shared = torch.empty(2, 1 << 14).share_memory_()
asked, answered = os.pipe(), os.pipe()
if os.fork() == 0:
    while (count := int.from_bytes(os.read(asked[0], 8), "little")) > 0:
        shared[1, :count] = polynomial(shared[0, :count])
        os.write(answered[1], b"d")
    os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shared[0, : x.numel()] = x.reshape(-1)
        os.write(asked[1], x.numel().to_bytes(8, "little"))
        os.read(answered[0], 1)
        return shared[1, : x.numel()].reshape(x.shape).clone()
