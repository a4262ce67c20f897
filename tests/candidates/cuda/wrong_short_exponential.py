# problem: tiny_softmax
# expect: WRONG_VALUES
# exploit: S11
"""The exponential by its first six terms: off by 2e-3 at the end of the range. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

constexpr int kThreads = 1024;

__device__ float short_exp(float x) {
  return 1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))));
}

// The sum of `value` over the block, on every thread of it.
__device__ float block_sum(float value) {
  __shared__ float parts[kThreads];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

// A block a row; inputs are between 0 and 1, so that nothing overflows.
__global__ void softmax_kernel(const float* x, float* y, long columns) {
  const float* in = x + blockIdx.x * columns;
  float* out = y + blockIdx.x * columns;
  float sum = 0.0f;
  for (long i = threadIdx.x; i < columns; i += kThreads) sum += short_exp(in[i]);
  sum = block_sum(sum);
  for (long i = threadIdx.x; i < columns; i += kThreads) out[i] = short_exp(in[i]) / sum;
}

extern "C" int softmax(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  softmax_kernel<<<rows, kThreads, 0, stream>>>(x, y, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "softmax", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        launch("softmax", x, y, *x.shape)
        return y
