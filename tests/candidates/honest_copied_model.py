# problem: tiny_groupnorm
# expect: PASSED
"""Builds its parts by deep copies, keeps the number of groups as a buffer, and saves and loads its state. PASSED."""

import copy
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
    double mean = 0.0, squares = 0.0;
    for (long i = 0; i < count; ++i) mean += in[i] / double(count);
    for (long i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + 1e-5);
    for (long i = 0; i < count; ++i) {
      const long channel = segment % groups * per_group + i / plane;
      y[segment * count + i] = float((in[i] - mean) * scale * gamma[channel] + beta[channel]);
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
        norm = nn.GroupNorm(num_groups, num_features)
        self.norm = copy.deepcopy(norm)
        self.norm.load_state_dict(norm.state_dict())
        self.register_buffer("groups", torch.tensor(num_groups))

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = x.shape[0], x.shape[1], int(self.groups), x[0, 0].numel()
        library.group_norm(*pointers, *map(ctypes.c_long, sizes))
        return y
