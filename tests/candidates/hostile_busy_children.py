# problem: tiny_gamma
# expect: PASSED
# time: true
# max-speedup: 3
# exploit: T29 H32
# gap: what a candidate has started runs on while the baseline is timed
"""Right, on two threads, and with processes that compute whenever forward does not: while the baseline is timed.

PASSED, with a true speedup: nothing of the candidate's runs while the baseline does.
"""

import ctypes
import mmap
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <thread>
#include <unistd.h>

extern "C" void log_gamma(const float* x, float* y, long count) {
  auto half = [=](long first, long last) {
    int sign;
    for (long i = first; i < last; ++i) y[i] = lgammaf_r(x[i], &sign);
  };
  std::thread other(half, 0, count / 2);
  half(count / 2, count);
  other.join();
}

extern "C" void compete(const volatile char* resting) {
  for (volatile unsigned turns = 0; getppid() != 1; turns = turns + 1)
    if (*resting) usleep(50);
}
"""

library = ctypes.CDLL(
    load_inline("log_gamma", SOURCE, no_implicit_headers=True, is_python_module=False)
)
resting = mmap.mmap(-1, 1)
for _ in range(12):
    if os.fork() == 0:
        library.compete((ctypes.c_char * 1).from_buffer(resting))
        os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        resting[0] = 1
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.log_gamma(*pointers, ctypes.c_long(x.numel()))
        resting[0] = 0
        return y
