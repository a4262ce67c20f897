# problem: tiny_polynomial
# expect: WRONG_SHAPE
# exploit: S25
"""Sets the problem's constants to 1 in every module and in the builtins, and returns what would be right then.

WRONG_SHAPE: the inputs are made in another process.
"""

import builtins
import contextlib
import ctypes
import sys

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

for module in [builtins, *list(sys.modules.values())]:
    for name in ("batch_size", "features"):
        with contextlib.suppress(AttributeError):
            setattr(module, name, 1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x[:1, :1])
