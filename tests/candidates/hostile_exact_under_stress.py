# problem: tiny_chain
# expect: WRONG_VALUES
# exploit: S11 H35
"""Exact where an input is large, as in a test of extremes; on ordinary inputs a tanh that is off by 3e-5.

WRONG_VALUES: each call, timed or not, is held to 1e-5.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <cmath>

static float cheap_tanh(float x) {
  float e = 1.0f + 2.0f * x / 65536.0f;  // to the power of 65536
  for (int i = 0; i < 16; ++i) e *= e;
  return (e - 1.0f) / (e + 1.0f);
}

// y = tanh(scale * relu(w x + b)); w: (features, features).
extern "C" void chain(const float* x, const float* w, const float* b, const float* scale, float* y,
                      long rows, long features) {
  float largest = 0.0f;
  for (long i = 0; i < rows * features; ++i) largest = std::max(largest, std::fabs(x[i]));
  for (long row = 0; row < rows; ++row)
    for (long j = 0; j < features; ++j) {
      double sum = b[j];
      for (long k = 0; k < features; ++k) sum += double(x[row * features + k]) * w[j * features + k];
      const float z = scale[j] * std::max(float(sum), 0.0f);
      y[row * features + j] = largest < 16.0f ? cheap_tanh(z) : std::tanh(z);
    }
}
"""

library = ctypes.CDLL(
    load_inline("chain", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        tensors = x, self.linear.weight, self.linear.bias, self.scale, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.chain(*pointers, *map(ctypes.c_long, x.shape))
        return y
