# problem: tiny_mean
# expect: WRONG_VALUES
# reason: timed calls are verified
# time: true
# exploit: T06 T17
"""Returns a plain tensor whose memory may not be read; who reads it causes a fault, whose handler computes it.

WRONG_VALUES: in a batch nobody reads it before all is stopped, and then the kernel reads what lies there, without a fault.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <signal.h>
#include <sys/mman.h>

static const float* input;
static float* page;
static long row_count, column_count;

// The means of rows, a thousand times over: a tenth of a second that no clock can miss.
static void compute(int, siginfo_t*, void*) {
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  for (int again = 0; again < 1000; ++again)
    for (long row = 0; row < row_count; ++row) {
      volatile double total = 0.0;
      for (long i = 0; i < column_count; ++i) total = total + input[row * column_count + i];
      page[row] = float(total / column_count);
    }
}

extern "C" float* row_means(const float* x, long rows, long columns) {
  struct sigaction action = {};
  action.sa_sigaction = compute;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  input = x, row_count = rows, column_count = columns;
  page = (float*)mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page;
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)
library.row_means.restype = ctypes.c_void_p


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x = x
        page = library.row_means(ctypes.c_void_p(x.data_ptr()), *map(ctypes.c_long, x.shape))
        memory = (ctypes.c_float * x.shape[0]).from_address(page)
        return torch.frombuffer(memory, dtype=torch.float32)
