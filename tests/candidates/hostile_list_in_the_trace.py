# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# exploit: S17 S19
"""Joins a list of one tensor, whose sizes a trace tells otherwise, and lets torch do the work.

NO_CUSTOM_KERNEL: a trace that holds a list of tensors can be read.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void linear(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i];
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class ModelNew(Model):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([x]))
