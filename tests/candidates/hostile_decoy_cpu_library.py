# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# reason: addmm
# exploit: S17
# slow: torch headers through g++
"""A "custom" C++ function that is a call of torch's own linear.

NO_CUSTOM_KERNEL: the compiled function does nothing itself; torch's product runs inside it.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor custom_linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  return torch::addmm(bias, x, weight.t());
}
"""

module = load_inline("custom_linear", SOURCE, functions=["custom_linear"])


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.custom_linear(x, self.linear.weight, self.linear.bias)
