# problem: tiny_polynomial
# expect: MUTATED_INPUT
# exploit: M03
"""Writes the right values over its input and returns that. MUTATED_INPUT."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x, x)
