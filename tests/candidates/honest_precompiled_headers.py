# problem: tiny_polynomial
# expect: PASSED
# slow: torch headers through g++
"""Asks torch for precompiled headers, which lie in torch's own folder and cannot be written there. PASSED."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor polynomial(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * in[i] + in[i];
  return y;
}
"""
extension = load_inline("polynomial", SOURCE, functions=["polynomial"], use_pch=True)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x.contiguous())
