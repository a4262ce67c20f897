# problem: tiny_groupnorm
# expect: PASSED
"""Right, and far slower than it need be: the statistics are computed again for every element. PASSED."""

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
  for (long i = 0; i < samples * channels * plane; ++i) {
    const float* group = x + i / count * count;
    double mean = 0.0, squares = 0.0;
    for (long j = 0; j < count; ++j) mean += group[j] / double(count);
    for (long j = 0; j < count; ++j) squares += (group[j] - mean) * (group[j] - mean);
    const long channel = i / plane % channels;
    y[i] = float((x[i] - mean) / std::sqrt(squares / count + 1e-5) * gamma[channel] + beta[channel]);
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
