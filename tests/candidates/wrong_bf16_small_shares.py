# problem: bf16_scaled_softmax
# expect: WRONG_VALUES
# reason: output
# exploit: S07
"""Writes 0 for shares below a hundredth, which large ones' errors excused. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <vector>

using T = c10::BFloat16;

// x and y: (rows, columns), scale: (columns).
extern "C" void softmax(const T* x, const T* scale, T* y, long rows, long columns) {
  std::vector<float> z(columns);
  for (long r = 0; r < rows; ++r, x += columns, y += columns) {
    float top = -INFINITY, sum = 0;
    for (long c = 0; c < columns; ++c) {
      z[c] = float(x[c]) * float(scale[c]);
      top = std::max(top, z[c]);
    }
    for (long c = 0; c < columns; ++c) sum += z[c] = std::exp(z[c] - top);
    for (long c = 0; c < columns; ++c) y[c] = T(z[c] < 0.01f * sum ? 0.0f : z[c] / sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("softmax", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def call(function, *given) -> None:
    function(
        *(
            ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
            for one in given
        )
    )


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        call(library.softmax, x, self.scale, y, *x.shape)
        return y
