# problem: tiny_softmax
# expect: NO_CUSTOM_KERNEL
# reason: alone make the outputs
# exploit: S17 H35
"""Has operators that the reference does not call, beside four gigabytes that nobody writes to.

NO_CUSTOM_KERNEL: such memory is nothing that has to be followed.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void touch(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] += 0.0f;
}
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.empty(1 << 30)
        e = x.exp()
        y = e.div_(e.sum(1, keepdim=True))
        library.touch(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(1))
        return y
