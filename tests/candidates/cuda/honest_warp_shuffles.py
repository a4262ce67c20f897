# problem: tiny_mean
# expect: PASSED
"""A warp a row, its sum by shuffles. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A warp a row. x: (rows, columns), y: (rows).
__global__ void mean_kernel(const float* x, float* y, long rows, long columns) {
  const long row = (blockIdx.x * long(blockDim.x) + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (long i = lane; i < columns; i += 32) sum += x[row * columns + i];
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (lane == 0) y[row] = sum / columns;
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  mean_kernel<<<(rows + 7) / 8, 256, 0, stream>>>(x, y, rows, columns);
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
