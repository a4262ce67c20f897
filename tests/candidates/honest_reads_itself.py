# problem: tiny_polynomial
# expect: PASSED
"""Takes its kernel's source out of its own file, by path and by inspect. PASSED: the file is there."""

import ctypes
import inspect
import re
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

KERNEL = """
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""


def source() -> str:
    text = Path(__file__).read_text(encoding="utf-8")
    assert inspect.getsource(source) in text
    return re.findall(r'^KERNEL = """(.*?)"""', text, re.DOTALL | re.MULTILINE)[0]


library = ctypes.CDLL(
    load_inline("polynomial", source(), no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
