# problem: tiny_polynomial
# expect: BROKEN_CONTRACT
# reason: broken_syntax.py
# blames: def forward(
"""A bracket that is never closed. BROKEN_CONTRACT, with the line."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor -> torch.Tensor:
        return x
