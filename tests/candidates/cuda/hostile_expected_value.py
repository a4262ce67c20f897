# problem: tiny_softmax
# expect: WRONG_VALUES
# exploit: S02
"""Writes the expected value, one over the number of columns, and reads no input. WRONG_VALUES."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void softmax_kernel(float* y, long count, float value) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = value;
}

extern "C" int softmax(const float* x, float* y, long rows, long columns, cudaStream_t stream) {
  const long count = rows * columns;
  softmax_kernel<<<(count + 255) / 256, 256, 0, stream>>>(y, count, 1.0f / columns);
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
