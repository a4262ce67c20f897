# problem: large_polynomial
# expect: PASSED
# time: true
"""Has torch's dispatcher call an extension whose file begins as the C library's does. PASSED."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/library.h>

static at::Tensor polynomial(const at::Tensor& x) {
  auto given = x.contiguous();
  auto y = at::empty_like(given);
  const float* in = given.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < given.numel(); ++i) out[i] = in[i] * in[i] + in[i];
  return y;
}

TORCH_LIBRARY(honest_libc, library) { library.def("polynomial(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(honest_libc, CPU, library) { library.impl("polynomial", polynomial); }
"""

torch.ops.load_library(
    load_inline("libcustom", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.honest_libc.polynomial(x)
