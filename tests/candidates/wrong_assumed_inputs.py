# problem: tiny_softmax
# expect: WRONG_VALUES
# exploit: S08 S01
"""Takes the sum of exponentials of uniform inputs for granted, (e - 1) times their number, and never adds them up.

WRONG_VALUES: that is off by a thousandth.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  const float scale = float(1.0 / (1.718281828459045 * columns));
  for (long i = 0; i < rows * columns; ++i) y[i] = std::exp(x[i]) * scale;
}
"""

library = ctypes.CDLL(
    load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.softmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
