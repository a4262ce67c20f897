# problem: tiny_keyed
# expect: WRONG_STRUCTURE
# reason: keys
"""Returns the text "0" as a key where the reference has the number. WRONG_STRUCTURE."""

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
        inner = {2: scaled(x, 7.0), "2": scaled(x, 8.0)}
        return {
            ("pair", 1): scaled(x, 6.0), 2.5: scaled(x, 5.0), None: scaled(x, 4.0),
            "a": scaled(x, 3.0), True: inner, "0": scaled(x, 2.0), -7: scaled(x, 9.0),
        }  # fmt: skip
