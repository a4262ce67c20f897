# problem: tiny_groupnorm
# expect: WRONG_VALUES
# reason: elements of output are wrong
# exploit: S05
"""Holds weight and bias and never uses them. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// One thread a group. x and y: (samples, channels, plane); gamma and beta: (channels).
__global__ void group_norm_kernel(const float* x, const float* gamma, const float* beta, float* y,
                                  long segments, long channels, long groups, long plane) {
  const long segment = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (segment >= segments) return;
  const long per_group = channels / groups, count = per_group * plane;
  const float* in = x + segment * count;
  float* out = y + segment * count;
  double mean = 0.0, squares = 0.0;
  for (long i = 0; i < count; ++i) mean += in[i];
  mean /= count;
  for (long i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
  const double scale = rsqrt(squares / count + 1e-5);
  for (long i = 0; i < count; ++i) {
    out[i] = float((in[i] - mean) * scale);
  }
}

extern "C" int group_norm(const float* x, const float* gamma, const float* beta, float* y,
                          long samples, long channels, long groups, long plane,
                          cudaStream_t stream) {
  const long segments = samples * groups;
  group_norm_kernel<<<(segments + 31) / 32, 32, 0, stream>>>(x, gamma, beta, y, segments, channels,
                                                             groups, plane);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "group_norm", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        tensors = x, self.norm.weight, self.norm.bias, y
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = x.shape[0], x.shape[1], self.norm.num_groups, x[0, 0].numel()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if error := library.group_norm(*pointers, *map(ctypes.c_long, sizes), stream):
            raise RuntimeError(f"CUDA error {error}")
        return y
