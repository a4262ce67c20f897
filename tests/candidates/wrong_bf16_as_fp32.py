# problem: tiny_bf16_chain
# expect: WRONG_DTYPE
# reason: float32
# reason: bfloat16
"""Returns the values before they are rounded, as float32. WRONG_DTYPE."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

static float widened(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

static uint16_t narrowed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float rounded(float value) { return widened(narrowed(value)); }

// x: (rows, depth), weight: (columns, depth), bias, scale and shift: (columns), y: (rows, columns).
extern "C" void chain(const uint16_t* x, const uint16_t* weight, const uint16_t* bias,
                      const uint16_t* scale, const uint16_t* shift, float* y, long rows,
                      long depth, long columns) {
  std::vector<float> line(columns);
  for (long r = 0; r < rows; ++r) {
    double sum = 0.0, squares = 0.0;
    for (long c = 0; c < columns; ++c) {
      float total = 0.0f;
      for (long k = 0; k < depth; ++k) {
        const float next = widened(x[r * depth + k]) * widened(weight[c * depth + k]);
        total = total + next;
      }
      line[c] = float(total + widened(bias[c]));
      sum += line[c];
    }
    for (float value : line) squares += (value - sum / columns) * (value - sum / columns);
    const double root = 1.0 / std::sqrt(squares / columns + 1e-5);
    for (long c = 0; c < columns; ++c) {
      const double centred = (line[c] - sum / columns) * root;
      const float normal = float(centred * widened(scale[c]) + widened(shift[c]));
      y[r * columns + c] = float(0.5f * normal * (1.0f + std::erf(normal * 0.70710678f)));
    }
  }
}
"""

library = ctypes.CDLL(
    load_inline("chain", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, linear, norm = x.contiguous(), self.linear, self.norm
        y = torch.empty(x.shape[0], linear.out_features, dtype=torch.float32)
        tensors = x, linear.weight, linear.bias, norm.weight, norm.bias, y
        sizes = x.shape[0], x.shape[1], y.shape[1]
        library.chain(*(ctypes.c_void_p(t.data_ptr()) for t in tensors), *map(ctypes.c_long, sizes))
        return y
