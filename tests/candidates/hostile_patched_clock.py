# problem: tiny_polynomial
# expect: PASSED
# time: true
# max-speedup: 20
# exploit: T10 T11
"""Right, and makes Python's clock a thousand times too slow, and every median, mean and sorted list of floats tiny.

PASSED, with true times: the host took its clock by reference before the candidate was imported, and the supervisor makes
statistics out of the single times, in its own process.
"""

import builtins
import ctypes
import statistics
import time

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

real = time.perf_counter
time.perf_counter = lambda: real() / 1000.0
for name in ("median", "mean", "fmean", "stdev"):
    setattr(statistics, name, lambda values, *args: 1e-6)
torch.median = torch.mean = lambda *args, **kwargs: torch.tensor(1e-6)
honest_sorted = builtins.sorted
builtins.sorted = lambda values, **kwargs: [
    1e-6 if type(value) is float else value for value in honest_sorted(values, **kwargs)
]

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


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
