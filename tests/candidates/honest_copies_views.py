# problem: tiny_views
# expect: PASSED
"""Returns copies where the reference returns views of its input. PASSED: memory of its own is never wrong."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void relu(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""

library = ctypes.CDLL(
    load_inline("relu", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.relu(*pointers, ctypes.c_long(x.numel()))
        return y, x[:, 3:9].clone(), x.t().contiguous(), x[:0].clone()
