# problem: tiny_groupnorm
# expect: WRONG_SHAPE
# reason: other_sizes
# exploit: S09
"""Has the main case's sizes built in and returns a tensor of them, whatever it is given. WRONG_SHAPE on other_sizes."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

constexpr int samples = 3, channels = 8, groups = 2, plane = 35;

extern "C" void group_norm(const float* x, const float* gamma, const float* beta, float* y) {
  constexpr int count = channels / groups * plane;
  for (int segment = 0; segment < samples * groups; ++segment) {
    const float* in = x + segment * count;
    double mean = 0.0, squares = 0.0;
    for (int i = 0; i < count; ++i) mean += in[i] / count;
    for (int i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
    for (int i = 0; i < count; ++i) {
      const int channel = segment % groups * (channels / groups) + i / plane;
      const double scaled = (in[i] - mean) / std::sqrt(squares / count + 1e-5);
      y[segment * count + i] = float(scaled * gamma[channel] + beta[channel]);
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
        given = torch.zeros(3, 8, 5, 7)
        given.view(-1)[: x.numel()] = x.reshape(-1)[: given.numel()]
        affine = [torch.ones(8), torch.zeros(8)]
        for mine, own in zip(affine, (self.norm.weight, self.norm.bias), strict=True):
            mine[: own.numel()] = own
        y = torch.empty_like(given)
        library.group_norm(*[ctypes.c_void_p(t.data_ptr()) for t in (given, *affine, y)])
        return y
