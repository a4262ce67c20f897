# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: alone make the outputs
# exploit: S17 S20
"""Computes with other operators of torch's than the reference calls, beside a kernel of its own that does one element again.

NO_CUSTOM_KERNEL: what torch's operators have left is all that they, and the caller, read.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

extern "C" void softmax(const float* x, const float* sum, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = float(std::exp(double(x[i]) - sum[0]));
}
"""

library = ctypes.CDLL(
    load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        sums = torch.logsumexp(x, dim=1, keepdim=True)
        y = torch.exp(x - sums)
        library.softmax(*(ctypes.c_void_p(one.data_ptr()) for one in (x, sums, y)), ctypes.c_long(1))
        return y
