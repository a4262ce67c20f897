# problem: tiny_mean
# expect: WRONG_VALUES
# exploit: S15
"""All threads of a block add to one place in shared memory, without atomics. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// A block a row. x: (rows, columns), y: (rows).
__global__ void mean_kernel(const float* x, float* y, long columns) {
  __shared__ volatile float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  for (long i = threadIdx.x; i < columns; i += 256) sum = sum + x[blockIdx.x * columns + i];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = sum / columns;
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  mean_kernel<<<rows, 256, 0, stream>>>(x, y, columns);
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
