# problem: tiny_polynomial
# expect: PASSED
# time: true
# slow: torch headers through g++
"""at::parallel_for over a tensor iterator's chunks, compiled with functions= and torch's headers. PASSED."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor polynomial(torch::Tensor x);"
SOURCE = r"""
#include <ATen/Parallel.h>

torch::Tensor polynomial(torch::Tensor x) {
  auto given = x.contiguous();
  auto y = torch::empty_like(given);
  const float* in = given.data_ptr<float>();
  float* out = y.data_ptr<float>();
  at::parallel_for(0, given.numel(), 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] * in[i] + in[i];
  });
  return y;
}
"""

extension = load_inline(
    name="polynomial",
    cpp_sources=[DECLARATION, SOURCE],
    functions={"polynomial": "x * x + x, element by element"},
    extra_cflags=["-O2"],
    verbose=True,
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x)
