# problem: tiny_kernelbench
# expect: BROKEN_CONTRACT
# reason: `hostile_exit_zero`, which is not installed here
# exploit: S23
"""Imports another candidate where all that is installed may be imported: that lies elsewhere. BROKEN_CONTRACT."""

import ctypes

import hostile_exit_zero
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        library.polynomial(*pointers, ctypes.c_long(x.numel() if hostile_exit_zero else 0))
        return y
