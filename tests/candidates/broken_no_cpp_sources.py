# problem: tiny_polynomial
# expect: BUILD_ERROR
# reason: cpp_sources
# blames: extension = load_inline(
"""load_inline called with CUDA text alone: cpp_sources is not optional. BUILD_ERROR that names it."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}
"""

extension = load_inline(name="polynomial", cuda_sources=CUDA_SOURCE, functions=["polynomial"])


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x)
