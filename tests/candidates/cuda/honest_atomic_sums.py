# problem: tiny_mean
# expect: PASSED
"""Adds up by atomics in float, so that the last bits differ from call to call. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// x: (rows, columns), y: (rows), zero before.
__global__ void mean_kernel(const float* x, float* y, long columns) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  const float* row = x + blockIdx.y * columns;
  if (i < columns) atomicAdd(y + blockIdx.y, row[i] / columns);
}

extern "C" int mean(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  cudaMemsetAsync(y, 0, rows * sizeof(float), stream);
  mean_kernel<<<dim3((columns + 255) / 256, rows), 256, 0, stream>>>(x, y, columns);
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
