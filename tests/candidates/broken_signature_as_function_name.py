# problem: tiny_polynomial
# expect: BUILD_ERROR
# reason: functions
# slow: torch headers through g++
"""A whole C++ signature where load_inline wants a function's name. BUILD_ERROR with a hint."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor polynomial(torch::Tensor x) { return x; }
"""

extension = load_inline("polynomial", SOURCE, functions=["torch::Tensor polynomial(torch::Tensor x)"])


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x)
