# problem: tiny_linear
# expect: PASSED
# time: true
# max-speedup: 3
# exploit: T29 H32
# gap: what a candidate has started runs on while the baseline is timed
"""Right, and no faster than it is; processes of its own compute whenever forward does not, so while the baseline runs.

PASSED, with a true speedup: nothing of the candidate's runs while the baseline does.
"""

import ctypes
import mmap
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <unistd.h>

// x: (rows, inner); weight: (columns, inner); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long i = 0; i < rows * columns; ++i) {
    const long row = i / columns, column = i % columns;
    float sum = 0.0f;
    for (long k = 0; k < inner; ++k) sum += x[row * inner + k] * weight[column * inner + k];
    y[i] = sum + bias[column];
  }
}

extern "C" void compete(const volatile char* resting) {
  while (getppid() != 1)
    if (*resting) usleep(20);
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)
resting = mmap.mmap(-1, 1)
for _ in range(2 * (os.cpu_count() or 1)):
    if os.fork() == 0:
        library.compete((ctypes.c_char * 1).from_buffer(resting))
        os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        resting[0] = 1
        weight, bias = self.linear.weight, self.linear.bias
        y = torch.empty(x.shape[0], weight.shape[0])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
        library.linear(*pointers, *map(ctypes.c_long, (*x.shape, weight.shape[0])))
        resting[0] = 0
        return y
