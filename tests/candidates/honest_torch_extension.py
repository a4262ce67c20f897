# problem: tiny_groupnorm
# expect: PASSED
# slow: torch headers through g++
"""GroupNorm as most people write an extension: torch/extension.h, at::Tensor in and out, pybind. PASSED."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

// x: (samples, channels, ...), contiguous; gamma and beta: (channels).
torch::Tensor group_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int64_t groups) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  const int64_t samples = x.size(0), channels = x.size(1);
  const int64_t plane = x.numel() / (samples * channels);
  const int64_t per_group = channels / groups, count = per_group * plane;
  const float* g = gamma.data_ptr<float>();
  const float* b = beta.data_ptr<float>();
  for (int64_t segment = 0; segment < samples * groups; ++segment) {
    const float* in = x.data_ptr<float>() + segment * count;
    float* out = y.data_ptr<float>() + segment * count;
    double mean = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; ++i) mean += in[i];
    mean /= count;
    for (int64_t i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + 1e-5);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t channel = segment % groups * per_group + i / plane;
      out[i] = float((in[i] - mean) * scale * g[channel] + b[channel]);
    }
  }
  return y;
}
"""

extension = load_inline(name="group_norm", cpp_sources=SOURCE, functions=["group_norm"])


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.group_norm(
            x.contiguous(), self.norm.weight, self.norm.bias, self.norm.num_groups
        )
