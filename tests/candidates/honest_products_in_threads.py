# problem: tiny_chain
# expect: PASSED
"""Has two threads call torch's product, which the reference calls as well, and computes the rest itself. PASSED."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
extern "C" void tail(float* y, const float* scale, long rows, long columns) {
  for (long r = 0; r < rows; ++r, y += columns)
    for (long c = 0; c < columns; ++c) y[c] = std::tanh(scale[c] * std::fmax(y[c], 0.0f));
}
"""

library = ctypes.CDLL(
    load_inline("tail", SOURCE, no_implicit_headers=True, is_python_module=False)
)


pool = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    @torch.no_grad()
    def product(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat(list(pool.map(self.product, x.chunk(2))))
        pointers = ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(self.scale.data_ptr())
        library.tail(*pointers, *map(ctypes.c_long, y.shape))
        return y
