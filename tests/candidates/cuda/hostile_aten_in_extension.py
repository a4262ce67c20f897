# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# exploit: S17 S20
# slow: torch headers through nvcc
"""An extension that calls ATen's operators; its own kernel is launched on no element.

NO_CUSTOM_KERNEL: the kernels that did the work are ATen's.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

torch::Tensor polynomial(torch::Tensor x) {
  auto y = torch::addcmul(x, x, x);
  polynomial_kernel<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), 0);
  return y;
}
"""

extension = load_inline(
    name="polynomial",
    cpp_sources="torch::Tensor polynomial(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["polynomial"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x)
