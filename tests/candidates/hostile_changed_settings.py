# problem: tiny_polynomial
# expect: PASSED
# warning: cudnn_conv_tf32
# warning: autocast_cpu
# warning: threads
# exploit: H26 T30
"""Turns on TF32 and float64 at import, and in forward cuDNN's TF32, autocast and other threads, for good.

All is put back before each call: PASSED, at the pinned precision, with a warning of what forward changed.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_default_dtype(torch.float64)

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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.backends.cudnn.allow_tf32 = True
        torch.autocast("cpu", torch.bfloat16).__enter__()
        torch.set_num_threads(7)
        return polynomial(x)
