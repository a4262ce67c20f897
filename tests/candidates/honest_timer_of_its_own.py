# problem: tiny_mean
# expect: PASSED
# time: true
"""Counts the ticks of a timer of its own, which go on while it is stopped. PASSED: the signal waits, and wakes nobody."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <signal.h>
#include <sys/time.h>

static volatile long ticks;
static volatile bool calling;

static void tick(int) { ticks = ticks + 1; }

extern "C" void start() {
  struct sigaction action = {};
  action.sa_handler = tick;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  calling = true;
  for (long row = 0; row < rows; ++row) {
    double total = 0.0;
    for (long i = 0; i < columns; ++i) total += x[row * columns + i];
    y[row] = float(total / columns);
  }
  calling = false;
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)
library.start()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape[0])
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.row_means(*pointers, *map(ctypes.c_long, x.shape))
        return y
