# problem: tiny_seeded
# expect: PASSED
"""Computes a float from initial values and keeps tensors in a tuple, drawn alike. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x and y: (rows, n); weight, plus and minus: (n); contiguous.
extern "C" void affine(const float* x, const float* weight, const float* plus, const float* minus,
                       float* y, float scale, long count, long n) {
  for (long i = 0; i < count; ++i)
    y[i] = x[i] * weight[i % n] * scale + plus[i % n] - minus[i % n];
}
"""

library = ctypes.CDLL(
    load_inline("affine", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features))
        self.scale = self.weight.max().item()
        self.held = (torch.rand(features), {"minus": torch.rand(features)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, n = x.contiguous(), x.shape[1]
        y, scale = torch.empty_like(x), self.scale
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.weight, self.held[0], self.held[1]["minus"], y)]
        library.affine(*pointers, ctypes.c_float(scale), ctypes.c_long(x.numel()), ctypes.c_long(n))
        return y
