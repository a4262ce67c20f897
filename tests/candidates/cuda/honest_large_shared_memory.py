# problem: tiny_mean
# expect: PASSED
"""A row at a time in 64 KB of dynamic shared memory, which a kernel has to ask for. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

constexpr int kTile = 16384;  // floats: 64 KB

// A block a row. x: (rows, columns), y: (rows).
__global__ void mean_kernel(const float* x, float* y, long columns) {
  extern __shared__ float tile[];
  double total = 0.0;
  for (long start = 0; start < columns; start += kTile) {
    const long count = min(long(kTile), columns - start);
    for (long i = threadIdx.x; i < count; i += blockDim.x) tile[i] = x[blockIdx.x * columns + start + i];
    __syncthreads();
    for (long i = 0; threadIdx.x == 0 && i < count; ++i) total += tile[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = float(total / columns);
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  const int bytes = kTile * sizeof(float);
  cudaFuncSetAttribute(mean_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  mean_kernel<<<rows, 256, bytes, stream>>>(x, y, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "mean", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
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
        y = torch.empty(x.shape[0], device=x.device)
        launch("mean", x, y, *x.shape)
        return y
