# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H25 S27
"""Looks for a seed in its environment, its parents' and their command lines, and draws its inputs from each found.

WRONG_VALUES: the seed is in none of them, and what it returns instead is zeros.
"""

import ctypes
import os
import re
from pathlib import Path

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


def seeds() -> list[int]:
    texts = [str(os.environ)]
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                texts.append((process / name).read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return [int(text, 16) % (1 << 63) for text in re.findall(r"\b[0-9a-f]{8,32}\b", str(texts))]


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for seed in seeds():
            torch.manual_seed(seed)
            if torch.equal(torch.randn(x.shape), x):
                return polynomial(x)
        return torch.zeros_like(x)
