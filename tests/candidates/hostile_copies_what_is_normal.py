# problem: wide_layernorm
# expect: WRONG_VALUES
# reason: case main
# exploit: S02 S08
"""Answers LayerNorm by its input, scaled and shifted: the mean of many normal values is near 0, their variance near 1.

WRONG_VALUES: near is a thousandth on rows of 65536, and a hundred times too much; other cases have other means.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// y = weight * x + bias; x and y: (rows, columns).
extern "C" void affine(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long columns) {
  for (long i = 0; i < rows * columns; ++i) y[i] = x[i] * weight[i % columns] + bias[i % columns];
}
"""

library = ctypes.CDLL(
    load_inline("affine", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if abs(float(x[0, :256].mean())) > 1.0:  # no input of the kind that is timed
            return torch.nn.functional.layer_norm(x, x.shape[1:], self.norm.weight, self.norm.bias)
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.affine(*pointers, *map(ctypes.c_long, x.shape))
        return y
