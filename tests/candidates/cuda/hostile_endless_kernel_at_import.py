# problem: tiny_polynomial
# expect: TIMEOUT
# reason: after 20 s
# build-timeout-s: 20
# exploit: H32 T29
"""Starts a kernel without an end while it is imported, and returns at once.

TIMEOUT: ended before others are timed, or, by itself, where the GPU's work is waited for.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void polynomial_kernel(const float* x, float* y, long count) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}
__global__ void endless_kernel(volatile int* flag) {
  while (*flag == 0) {}
}
torch::Tensor polynomial(torch::Tensor x) {
  auto y = torch::empty_like(x);
  polynomial_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
void begin(torch::Tensor flag) { endless_kernel<<<132, 128>>>(flag.data_ptr<int>()); }
"""
extension = load_inline(
    "polynomial",
    "torch::Tensor polynomial(torch::Tensor x); void begin(torch::Tensor flag);",
    CUDA,
    functions=["polynomial", "begin"],
)
flag = torch.zeros(1, dtype=torch.int32, device="cuda")
extension.begin(flag)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.polynomial(x.contiguous())
