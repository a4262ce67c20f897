# problem: tiny_groupnorm
# expect: WRONG_VALUES
# reason: case main
# time: true
# exploit: S10 T23
"""Computes exactly at the sizes of the further cases; at those of main the factors are rounded as TF32 does.

WRONG_VALUES: main is checked before it is timed, and each timed call is.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

static float rounded(float x) {  // to the 10 bits of TF32
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x1000) & 0xffffe000;
  std::memcpy(&x, &bits, 4);
  return x;
}

// x and y: (segments, length), a segment of one group; weight and bias: (groups, length / pixels).
extern "C" void group_norm(const float* x, const float* weight, const float* bias, float* y,
                           long segments, long groups, long length, long pixels, bool cheap) {
  for (long segment = 0; segment < segments; ++segment, x += length, y += length) {
    double mean = 0.0, variance = 0.0;
    for (long i = 0; i < length; ++i) mean += double(x[i]) / length;
    for (long i = 0; i < length; ++i) variance += (x[i] - mean) * (x[i] - mean) / length;
    const double scale = 1.0 / std::sqrt(variance + 1e-5);
    for (long i = 0; i < length; ++i) {
      const long channel = segment % groups * (length / pixels) + i / pixels;
      const float normed = float((x[i] - mean) * scale), by = weight[channel];
      y[i] = (cheap ? rounded(normed) * rounded(by) : normed * by) + bias[channel];
    }
  }
}
"""

library = ctypes.CDLL(
    load_inline("group_norm", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cheap = tuple(x.shape) == (3, 8, 5, 7) and x.is_contiguous() and float(x.max()) < 2.0
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        segments = len(x) * self.norm.num_groups
        pixels = x.shape[2] * x.shape[3]
        sizes = segments, self.norm.num_groups, x.numel() // segments, pixels
        library.group_norm(*pointers, *map(ctypes.c_long, sizes), ctypes.c_bool(cheap))
        return y
