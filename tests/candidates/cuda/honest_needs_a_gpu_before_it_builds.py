# problem: tiny_polynomial
# expect: PASSED
# without-gpu: NO_DEVICE
"""Puts a tensor on the GPU when it is constructed, and builds in forward. PASSED.

Without a GPU it comes to no build: that is the machine's, and no error of a compiler's.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void polynomial(const float* x, float* y, long n) {
  long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] + x[i];
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  polynomial<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(1, device="cuda"), persistent=False)
        self.extension = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.extension is None:
            self.extension = load_inline(
                "polynomial",
                "torch::Tensor run(torch::Tensor x);",
                cuda_sources=SOURCE,
                functions=["run"],
            )
        return self.extension.run(x.contiguous())
