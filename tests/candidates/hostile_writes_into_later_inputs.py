# problem: tiny_polynomial
# expect: MUTATED_INPUT
# exploit: M02
"""Right; from the second call of a shape on it saves the allocation and writes the result into its input.

MUTATED_INPUT: whoever calls it loses the input.
"""

import ctypes

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


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.polynomial(*pointers, ctypes.c_long(x.numel()))
    return y

shapes: set[torch.Size] = set()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = polynomial(x)
        if x.shape in shapes:
            return x.copy_(y)
        shapes.add(x.shape)
        return y
