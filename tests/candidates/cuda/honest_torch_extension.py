# problem: tiny_groupnorm
# expect: PASSED
# slow: torch headers through nvcc
"""GroupNorm as most people write an extension: torch/extension.h, a block a group, a tree in shared memory. PASSED."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor group_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int groups);"

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int kThreads = 256;

// The sum of `value` over the block, on every thread of it.
__device__ double block_sum(double value) {
  __shared__ double partial[kThreads];
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = partial[0];
  __syncthreads();
  return sum;
}

__global__ void group_norm_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                  const float* __restrict__ beta, float* __restrict__ y,
                                  int64_t per_group, int64_t groups, int64_t plane) {
  const int64_t count = per_group * plane;
  const float* in = x + blockIdx.x * count;
  float* out = y + blockIdx.x * count;
  double sum = 0.0, squares = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += in[i];
  const double mean = block_sum(sum) / count;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) squares += (in[i] - mean) * (in[i] - mean);
  const double scale = rsqrt(block_sum(squares) / count + 1e-5);
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    const int64_t channel = blockIdx.x % groups * per_group + i / plane;
    out[i] = float((in[i] - mean) * scale * gamma[channel] + beta[channel]);
  }
}

torch::Tensor group_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int groups) {
  auto y = torch::empty_like(x);
  const int64_t samples = x.size(0), channels = x.size(1);
  const int64_t plane = x.numel() / (samples * channels);
  group_norm_kernel<<<samples * groups, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(),
      channels / groups, groups, plane);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="group_norm",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["group_norm"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.group_norm(
            x.contiguous(), self.norm.weight, self.norm.bias, self.norm.num_groups
        )
