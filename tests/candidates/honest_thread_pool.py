# problem: tiny_polynomial
# expect: PASSED
# time: true
"""Halves of the work go to a pool of Python threads that lives as long as the model; forward waits for both. PASSED."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void polynomial(const float* x, float* y, long first, long last) {
  for (long i = first; i < last; ++i) y[i] = x[i] * x[i] + x[i];
}
"""

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(max_workers=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        edges = [0, x.numel() // 2, x.numel()]
        halves = [
            self.pool.submit(library.polynomial, *pointers, ctypes.c_long(a), ctypes.c_long(b))
            for a, b in zip(edges, edges[1:])
        ]
        for half in halves:
            half.result()
        return y
