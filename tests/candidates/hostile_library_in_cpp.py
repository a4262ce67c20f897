# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# exploit: S17
# slow: torch headers through g++
"""An extension in C++ that hands the whole work to torch's own addmm. NO_CUSTOM_KERNEL: nothing of it is its own."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  return at::addmm(bias, x, weight.t());
}
"""

extension = load_inline(name="linear", cpp_sources=SOURCE, functions=["linear"])


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.linear(x, self.linear.weight, self.linear.bias)
