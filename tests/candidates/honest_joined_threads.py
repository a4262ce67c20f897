# problem: tiny_mean
# expect: PASSED
# time: true
"""A std::thread for each row, all of them joined before the function returns. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <thread>
#include <vector>

extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  std::vector<std::thread> threads;
  for (long row = 0; row < rows; ++row)
    threads.emplace_back([=] {
      double total = 0.0;
      for (long i = 0; i < columns; ++i) total += x[row * columns + i];
      y[row] = float(total / columns);
    });
  for (std::thread& thread : threads) thread.join();
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty(x.shape[0])
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape))
        return y
