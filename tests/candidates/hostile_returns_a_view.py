# problem: tiny_turned
# expect: WRONG_STRUCTURE
# reason: output lies in an input's memory
# exploit: M03 S20
"""Returns a view of its input where the reference copies, beside a kernel that copies a few elements.

WRONG_STRUCTURE: whoever writes into the input next would change the result.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void copied(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i];
}
"""

library = ctypes.CDLL(
    load_inline("copied", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        few = torch.empty(16)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(few.data_ptr())
        library.copied(*pointers, ctypes.c_long(few.numel()))
        return x.t()
