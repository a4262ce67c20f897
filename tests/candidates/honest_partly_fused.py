# problem: tiny_chain
# expect: PASSED
"""Keeps the reference's Linear as it is, torch's product included, and fuses what follows into one kernel. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// y = tanh(scale * relu(x)); x and y: (rows, columns), scale: (columns), contiguous.
extern "C" void relu_scale_tanh(const float* x, const float* scale, float* y, long rows,
                                long columns) {
  for (long i = 0; i < rows * columns; ++i)
    y[i] = std::tanh(scale[i % columns] * (x[i] > 0.0f ? x[i] : 0.0f));
}
"""

library = ctypes.CDLL(
    load_inline("relu_scale_tanh", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.scale, y)]
        library.relu_scale_tanh(*pointers, *map(ctypes.c_long, x.shape))
        return y
