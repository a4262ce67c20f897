# problem: tiny_keyed
# expect: WRONG_STRUCTURE
"""Returns a dict with an object, a tensor and a dtype as keys. WRONG_STRUCTURE."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void scale(const float* x, float* y, long count, float by) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * by;
}
"""

library = ctypes.CDLL(
    load_inline("scale", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    y = torch.empty_like(x)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.scale(*pointers, ctypes.c_long(x.numel()), ctypes.c_float(by))
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[object, object]:
        return {object(): scaled(x, 2.0), x: scaled(x, 3.0), torch.float32: scaled(x, 4.0), 0: x}
