# problem: fp16_mean
# expect: NON_FINITE
# exploit: S12
"""Adds up in float16, which ends at 65504. NON_FINITE: registers of fp32 go on."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/util/Half.h>

#include <algorithm>

using T = c10::Half;

extern "C" void mean(const T* x, T* y, long rows, long columns) {
  for (long r = 0; r < rows; ++r, x += columns) {
    T sum = 0;
    for (long i = 0; i < columns; ++i) sum = sum + x[i];
    y[r] = T(float(sum) / columns);
  }
}
"""

library = ctypes.CDLL(
    load_inline("mean", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=torch.float16)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.mean(*pointers, *map(ctypes.c_long, x.shape))
        return y
