# problem: tiny_polynomial
# expect: PASSED
"""Registers its function with TORCH_LIBRARY and calls it as torch.ops does. PASSED."""

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

TORCH_LIBRARY(honest, library) { library.def("polynomial(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(honest, CPU, library) { library.impl("polynomial", polynomial); }
"""

torch.ops.load_library(
    load_inline("honest_polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.honest.polynomial(x)
