# problem: tiny_softmax
# expect: PASSED
# time: true
"""Starts a task of the C++ library's for every row, each in a thread of its own. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <future>
#include <vector>

static void softmax_row(const float* x, float* y, long columns) {
  double sum = 0;
  for (long c = 0; c < columns; ++c) sum += std::exp(double(x[c]));
  for (long c = 0; c < columns; ++c) y[c] = float(std::exp(double(x[c])) / sum);
}

extern "C" void softmax(const float* x, float* y, long rows, long columns) {
  std::vector<std::future<void>> tasks;
  for (long r = 0; r < rows; ++r) {
    tasks.push_back(std::async(std::launch::async, softmax_row, x + r * columns, y + r * columns, columns));
    if (tasks.size() == 8) tasks.clear();  // waits for them
  }
}
"""

library = ctypes.CDLL(
    load_inline(
        "softmax",
        SOURCE,
        extra_cflags=["-O2", "-pthread"],
        no_implicit_headers=True,
        is_python_module=False,
    )
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.softmax(*pointers, *map(ctypes.c_long, x.shape))
        return y
