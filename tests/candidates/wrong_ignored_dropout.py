# problem: tiny_noise
# expect: WRONG_VALUES
# reason: draw what it draws, by the same calls in its order
"""Leaves the Dropout out, as if the model were not in training mode. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x, noise and y: n elements.
extern "C" void noisy_tanh(const float* x, const float* noise, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = float(std::tanh(double(x[i] + noise[i])));
}
"""

library = ctypes.CDLL(
    load_inline("noisy_tanh", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def noisy_tanh(x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    x, y = x.contiguous(), torch.empty_like(x)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, noise, y)]
    library.noisy_tanh(*pointers, ctypes.c_long(x.numel()))
    return y


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return noisy_tanh(x, torch.randn(x.shape))
