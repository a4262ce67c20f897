# problem: tiny_softmax
# expect: PASSED
# time: true
"""Leaves the maximum and the division to torch, and keeps its exponentials in a workspace made for much larger inputs. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>

extern "C" void exponentials(const float* x, const float* most, float* work, float* y, float* sums,
                             long rows, long columns) {
  for (long row = 0; row < rows; ++row, x += columns, y += columns) {
    double sum = 0.0;
    for (long i = 0; i < columns; ++i) sum += work[i] = std::exp(x[i] - most[row]);
    for (long i = 0; i < columns; ++i) y[i] = work[i];
    sums[row] = float(sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("exponentials", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        workspace = torch.empty(1 << 30)
        tensors = x, x.amax(dim=1), workspace, torch.empty_like(x), torch.empty(len(x))
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        library.exponentials(*pointers, *map(ctypes.c_long, x.shape))
        return tensors[3] / tensors[4][:, None]
