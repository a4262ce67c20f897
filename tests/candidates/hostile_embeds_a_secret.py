# problem: tiny_polynomial
# expect: BUILD_ERROR
# exploit: H29 H09
# sandbox: require
"""Has the assembler put the problem's file from the grader's repository into its library.

BUILD_ERROR: compilers see no more than the candidate does, and there is no such file.
"""

import ctypes
import sys
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

home = Path(sys.modules["kernelgen"].__file__).parents[1]
SOURCE = (
    r"""
asm(".data\nsecret: .incbin \"PROBLEM\"\n.byte 0\n.text");
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = 1.0f;
}
""".replace("PROBLEM", str(home / "tests" / "problems" / "tiny_polynomial.yaml"))
)

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
