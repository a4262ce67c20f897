# problem: tiny_linear
# expect: NO_CUSTOM_KERNEL
# reason: alone make the outputs
# exploit: S17 S20
"""Calls another product than the reference's, with a bias that is broadcast: a view whose elements share memory.

NO_CUSTOM_KERNEL: such views are followed like others.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void touch(float* y) { y[0] += 0.0f; }
"""

library = ctypes.CDLL(
    load_inline("touch", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def touch(y: torch.Tensor) -> torch.Tensor:
    library.touch(ctypes.c_void_p(y.data_ptr()))
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.linear.bias.expand(1, len(x), -1)
        return touch(torch.baddbmm(bias, x[None], self.linear.weight.t()[None])[0])
