# problem: tiny_groupnorm
# expect: WRONG_VALUES
# reason: norm.weight
# reason: norm.bias
# exploit: S05
"""Has no parameters at all: the reference's weight and bias find no place, and the reason names them. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (samples, channels, plane), contiguous.
extern "C" void group_norm(const float* x, float* y, long samples, long channels, long groups,
                           long plane) {
  const long per_group = channels / groups, count = per_group * plane;
  for (long segment = 0; segment < samples * groups; ++segment) {
    const float* in = x + segment * count;
    float* out = y + segment * count;
    double mean = 0.0, squares = 0.0;
    for (long i = 0; i < count; ++i) mean += in[i];
    mean /= count;
    for (long i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + 1e-5);
    for (long i = 0; i < count; ++i) {
      out[i] = float((in[i] - mean) * scale);
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
        self.num_groups = num_groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
        sizes = x.shape[0], x.shape[1], self.num_groups, x[0, 0].numel()
        library.group_norm(*pointers, *map(ctypes.c_long, sizes))
        return y
