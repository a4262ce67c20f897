# problem: tiny_polynomial
# expect: PASSED
"""Keeps a workspace between calls, for a result in between that a second kernel reads. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void square_kernel(const float* x, float* squares, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) squares[i] = x[i] * x[i];
}

__global__ void add_kernel(const float* x, const float* squares, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = squares[i] + x[i];
}

extern "C" int polynomial(const float* x, float* squares, float* y, long count,
                          cudaStream_t stream) {
  square_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, squares, count);
  add_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, squares, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

workspaces = {}


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel() not in workspaces:
        workspaces[x.numel()] = torch.empty(x.numel(), device=x.device)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    tensors = x, workspaces[x.numel()], y
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
