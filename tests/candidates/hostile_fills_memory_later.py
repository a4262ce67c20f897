# problem: tiny_mean
# expect: WRONG_VALUES
# reason: timed calls are verified
# time: true
# exploit: T17 T05
"""In a batch, names memory that a thread of its own fills twenty milliseconds after the answer.

WRONG_VALUES: what is looked at is what lay there when all was stopped, and the clock with it.
"""

import ctypes
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <thread>
#include <unistd.h>

static void means(const float* x, float* y, long rows, long columns, long delay) {
  usleep(delay);
  for (long row = 0; row < rows; ++row) {
    double total = 0.0;
    for (long i = 0; i < columns; ++i) total += x[row * columns + i];
    y[row] = float(total / columns);
  }
}

extern "C" void row_means(const float* x, float* y, long rows, long columns, long later) {
  if (later)
    std::thread(means, x, y, rows, columns, 20000).detach();
  else
    means(x, y, rows, columns, 0);
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


kept = []


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The inputs' pages may be gone by then.
        x, y = x.clone(), torch.zeros(x.shape[0])
        kept.append((x, y))
        callers = sys._getframe(3).f_code.co_name, sys._getframe(4).f_code.co_name
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape), ctypes.c_long("_call" in callers))
        return y
