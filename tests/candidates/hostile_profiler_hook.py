# problem: tiny_mean
# expect: WRONG_VALUES
# time: true
# exploit: T17
"""Has Python's profiler hook compute the output as soon as the host has read its clock for the second time.

WRONG_VALUES: in a batch, for which only the supervisor's clock runs, nobody reads one for a second time.
"""

import ctypes
import sys
import time

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// The means of rows, a thousand times over: a tenth of a second that no clock can miss.
extern "C" void row_means(const float* x, float* y, long rows, long columns) {
  for (int again = 0; again < 1000; ++again)
    for (long row = 0; row < rows; ++row) {
      volatile double total = 0.0;
      for (long i = 0; i < columns; ++i) total = total + x[row * columns + i];
      y[row] = float(total / columns);
    }
}
"""

library = ctypes.CDLL(
    load_inline("row_means", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def row_means(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    library.row_means(*pointers, *map(ctypes.c_long, x.shape))
    return y

pending: list[tuple[torch.Tensor, torch.Tensor]] = []


def hook(frame: object, event: str, argument: object) -> None:
    if event == "c_return" and argument is time.perf_counter and pending:
        row_means(*pending.pop())


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape[0])
        pending.append((x, y))
        sys.setprofile(hook)
        return y
