# problem: tiny_mean
# expect: PASSED
# time: true
"""Forks a child for half of the rows in each call, and waits for it. PASSED: it is gone before the answer.

Its last child stays a zombie until the next call.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void means(const float* x, float* y, long first, long last, long columns) {
  for (long row = first; row < last; ++row) {
    double total = 0.0;
    for (long i = 0; i < columns; ++i) total += x[row * columns + i];
    y[row] = float(total / columns);
  }
}

extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {}
  int done[2];
  if (pipe(done)) return;
  float* shared = (float*)mmap(
      nullptr, rows * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!fork()) {
    means(x, shared, 0, rows / 2, columns);
    _exit(write(done[1], "x", 1) != 1);
  }
  means(x, y, rows / 2, rows, columns);
  char word;
  if (read(done[0], &word, 1) != 1) return;
  for (long row = 0; row < rows / 2; ++row) y[row] = shared[row];
  munmap(shared, rows * sizeof(float));
  close(done[0]);
  close(done[1]);
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0])
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape))
        return y
