# problem: tiny_polynomial
# expect: PASSED
"""A kernel that torch compiles at run time with NVRTC, without any C++ around it. PASSED."""

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void polynomial_kernel(const float* x, float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "polynomial_kernel")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = (x.numel() + 255) // 256
        kernel((blocks, 1, 1), (256, 1, 1), (x, y, x.numel()))
        return y
