# problem: tiny_gated
# expect: WRONG_VALUES
# reason: gate
# exploit: S06 S05
"""Leaves out the branch whose gate begins as zero, where it makes no difference. WRONG_VALUES: the gate is drawn anew."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void keep(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i];
}
"""

library = ctypes.CDLL(
    load_inline("keep", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.keep(*pointers, ctypes.c_long(x.numel()))
        return y
