# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# reason: it works where the candidate is not
# exploit: S17 S20
"""Has Python refuse to read JSON, so that there is no trace, and lets torch compute.

NO_CUSTOM_KERNEL: where the oracle's calls can be traced, no trace is no evidence.
"""

import ctypes
import json

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def refuse(*arguments, **keywords):
    raise ValueError("no trace today")


json.loads = refuse


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x + x
