# problem: tiny_linear
# expect: PASSED
# time: true
# exploit: C08
"""Transposes the weight and keeps the result until torch counts a change of it. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, inner); packed: (inner, columns); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* packed, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long row = 0; row < rows; ++row) {
    float* out = y + row * columns;
    for (long column = 0; column < columns; ++column) out[column] = bias[column];
    for (long k = 0; k < inner; ++k)
      for (long column = 0; column < columns; ++column)
        out[column] += x[row * inner + k] * packed[k * columns + column];
  }
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.packed, self.version = None, -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        if self.version != weight._version:
            self.packed, self.version = weight.t().contiguous(), weight._version
        y = torch.empty(x.shape[0], self.packed.shape[1])
        tensors = x.contiguous(), self.packed, self.linear.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.linear(*pointers, *map(ctypes.c_long, (*x.shape, y.shape[1])))
        return y
