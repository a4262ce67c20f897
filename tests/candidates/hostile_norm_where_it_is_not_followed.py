# problem: wide_layernorm
# expect: NO_CUSTOM_KERNEL
# reason: native_layer_norm
# exploit: S17 H35
"""Changes what torch's norm has made, and back, where a dispatch mode is on; torch makes the whole of every other call.

NO_CUSTOM_KERNEL: torch's norm is given weight and bias, so that nothing of it is left to a kernel of its own.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void scale(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] /= 3.0f;
}
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        if not torch._C._len_torch_dispatch_stack():
            return y
        y *= 3
        library.scale(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()))
        return y
