# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# exploit: S20
"""Changes every element that torch's operators made, by its last bit.

NO_CUSTOM_KERNEL: a change that no comparison would notice is no part in the result.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void flip(unsigned* y, long count) {
  for (long i = 0; i < count; ++i) y[i] ^= 1;
}
"""

library = ctypes.CDLL(
    load_inline("flip", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e = x.exp()
        y = e / e.sum(1, keepdim=True)
        library.flip(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()))
        return y
