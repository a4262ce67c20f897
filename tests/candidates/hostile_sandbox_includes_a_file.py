# problem: tiny_polynomial
# expect: BUILD_ERROR
# reason: No such file
# sandbox: require
# exploit: H29
"""Includes a file of the grader's, which the compiler would quote in its messages.

BUILD_ERROR: compilers run inside as well, where the file is not.
"""

import ctypes
import sys
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

problem = Path(sys.modules["kernelgen.grading.wire.messages"].__file__).parents[4] / "pyproject.toml"
SOURCE = f"""
#include "{problem}"
extern "C" void polynomial(const float* x, float* y, long count) {{
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
