# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: could be followed
# exploit: S17 H35
"""Has its own kernel compute where a dispatch mode is on, and other operators than the reference's in every other call.

NO_CUSTOM_KERNEL: a followed call has to run what the traced batch runs.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  for (long r = 0; r < rows; ++r, x += columns, y += columns) {
    double sum = 0;
    for (long c = 0; c < columns; ++c) sum += y[c] = std::exp(x[c]);
    for (long c = 0; c < columns; ++c) y[c] = float(y[c] / sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch._C._len_torch_dispatch_stack():
            e = x.exp()
            return e.div_(e.sum(1, keepdim=True))
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.softmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
