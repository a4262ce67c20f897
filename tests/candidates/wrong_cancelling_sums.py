# problem: tiny_groupnorm
# expect: WRONG_VALUES
# reason: large_offset
# exploit: S12
"""The variance is the mean of the squares minus the square of the mean, in fp32: it cancels where the mean is large.

Right on the main case, WRONG_VALUES on large_offset.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x and y: (samples, channels, plane), contiguous; gamma and beta: (channels).
extern "C" void group_norm(const float* x, const float* gamma, const float* beta, float* y,
                           long samples, long channels, long groups, long plane) {
  const long per_group = channels / groups, count = per_group * plane;
  for (long segment = 0; segment < samples * groups; ++segment) {
    const float* in = x + segment * count;
    float* out = y + segment * count;
    float sum = 0.0f, squares = 0.0f;
    for (long i = 0; i < count; ++i) sum += in[i], squares += in[i] * in[i];
    const float mean = sum / count;
    const float scale = 1.0f / std::sqrt(squares / count - mean * mean + 1e-5f);
    for (long i = 0; i < count; ++i) {
      const long channel = segment % groups * per_group + i / plane;
      out[i] = float((in[i] - mean) * scale * gamma[channel] + beta[channel]);
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
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = x.shape[0], x.shape[1], self.num_groups, x[0, 0].numel()
        library.group_norm(*pointers, *map(ctypes.c_long, sizes))
        return y
