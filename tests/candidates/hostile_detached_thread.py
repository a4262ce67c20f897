# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: T05
"""Returns at once; a detached std::thread, which Python does not know of, fills in the output 50 ms later.

WRONG_VALUES: the output is read when forward returns.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <chrono>
#include <thread>

extern "C" void polynomial(const float* x, float* y, long count) {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
  }).detach();
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)
kept: list[torch.Tensor] = []


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.zeros_like(x)
        kept.extend((x, y))
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
