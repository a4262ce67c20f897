# problem: wide_linear
# expect: NO_CUSTOM_KERNEL
# reason: in a library of torch's
# time: true
# exploit: S17 S20
"""Fills its stack with addresses of its own before it calls torch's product, which is not recorded.

NO_CUSTOM_KERNEL: what runs in torch's library is torch's work, whatever lies on the stack, where a caller is looked for.
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
extern "C" void scale(float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] /= 3.0f;
}
extern "C" void leave(volatile uintptr_t* words) { words[0] = words[0]; }
extern "C" __attribute__((noinline)) void fill() {
  volatile uintptr_t words[60000];
  for (auto& word : words) word = (uintptr_t)&scale + 4;
  leave(words);
}
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The others would be seen waiting in a library.
        torch.set_num_threads(1)
        torch.autograd._enable_record_function(False)
        library.fill()
        y = F.linear(x, self.linear.weight, self.linear.bias)
        torch.autograd._enable_record_function(True)
        # Followed, it changes what torch has made, and back.
        if torch._C._len_torch_dispatch_stack():
            y *= 3
            library.scale(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()))
        return y
