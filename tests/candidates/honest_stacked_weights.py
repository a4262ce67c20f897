# problem: tiny_projections
# expect: PASSED
# maps: weight[0:1] <- query.weight
# maps: weight[1:2] <- key.weight
# maps: weight[2:3] <- value.weight
# maps: bias[0:1] <- query.bias
# maps: bias[1:2] <- key.bias
# maps: bias[2:3] <- value.bias
"""Three layers' weights are stacked, as those of experts often are: each slice gets its values. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// x: (rows, inner); weight: (columns, inner); bias: (columns); y: (rows, columns); contiguous.
extern "C" void linear(const float* x, const float* weight, const float* bias, float* y, long rows,
                       long inner, long columns) {
  for (long i = 0; i < rows * columns; ++i) {
    double sum = bias[i % columns];
    for (long k = 0; k < inner; ++k)
      sum += double(x[i / columns * inner + k]) * weight[i % columns * inner + k];
    y[i] = float(sum);
  }
}
"""

library = ctypes.CDLL(
    load_inline("linear", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty(len(x), len(weight))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight, bias, y)]
    library.linear(*pointers, *map(ctypes.c_long, (len(x), x.shape[1], len(weight))))
    return y


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        layers = [nn.Linear(features, features) for _ in range(3)]
        self.weight = nn.Parameter(torch.stack([layer.weight for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias for layer in layers]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([linear(x, *pair) for pair in zip(self.weight, self.bias)], dim=1)
