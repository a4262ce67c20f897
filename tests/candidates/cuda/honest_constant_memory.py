# problem: tiny_groupnorm
# expect: PASSED
# maps: scale <- norm.weight
# maps: shift <- norm.bias
"""Reads weight and bias, under names of its own, from constant memory, and its input by its strides.

It returns its output in the channels-last layout. PASSED: strides and parameters' names are free.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

__constant__ float affine[2][64];  // weight and bias

// One thread a group. x and y: (samples, channels, plane), any strides of x.
__global__ void group_norm_kernel(const float* x, float* y, long segments, long channels,
                                  long groups, long height, long width, long sample_step,
                                  long channel_step, long row_step, long column_step) {
  const long segment = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (segment >= segments) return;
  const long plane = height * width, per_group = channels / groups, count = per_group * plane;
  const long first = segment % groups * per_group;
  const auto at = [=](long i) {
    return double(x[segment / groups * sample_step + (first + i / plane) * channel_step +
                    i % plane / width * row_step + i % width * column_step]);
  };
  double mean = 0.0, squares = 0.0;
  for (long i = 0; i < count; ++i) mean += at(i);
  mean /= count;
  for (long i = 0; i < count; ++i) squares += (at(i) - mean) * (at(i) - mean);
  const double scale = rsqrt(squares / count + 1e-5);
  for (long i = 0; i < count; ++i) {
    const long channel = first + i / plane;
    y[segment * count + i] = float((at(i) - mean) * scale * affine[0][channel] + affine[1][channel]);
  }
}

extern "C" int group_norm(const float* x, const float* gamma, const float* beta, float* y,
                          long samples, long channels, long groups, long height, long width,
                          long sample_step, long channel_step, long row_step, long column_step,
                          cudaStream_t stream) {
  const size_t bytes = channels * sizeof(float);
  const auto kind = cudaMemcpyDeviceToDevice;
  cudaMemcpyToSymbolAsync(affine, gamma, bytes, 0, kind, stream);
  cudaMemcpyToSymbolAsync(affine, beta, bytes, sizeof affine[0], kind, stream);
  group_norm_kernel<<<(samples * groups + 31) / 32, 32, 0, stream>>>(
      x, y, samples * groups, channels, groups, height, width, sample_step, channel_step, row_step,
      column_step);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "group_norm", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call a launcher on the current stream, with pointers for tensors and longs for numbers."""
    converted = [
        ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
        for one in arguments
    ]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if error := getattr(library, name)(*converted, stream):
        raise RuntimeError(f"CUDA error {error}")


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.groups = num_groups
        self.scale = nn.Parameter(torch.ones(num_features))
        self.shift = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, device=x.device)
        sizes = *x.shape[:2], self.groups, *x.shape[2:], *x.stride()
        launch("group_norm", x, self.scale, self.shift, y, *sizes)
        return y.contiguous(memory_format=torch.channels_last)
