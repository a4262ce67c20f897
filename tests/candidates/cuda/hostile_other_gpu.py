# problem: tiny_polynomial
# expect: RUNTIME_ERROR
# reason: CUDA error 101
# exploit: T20
"""Asks for all GPUs before CUDA starts and works on the second one, which the events do not see.

RUNTIME_ERROR: the candidate has one device; there is no other to be chosen.
"""

import ctypes
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  if (const cudaError_t error = cudaSetDevice(1)) return error;
  cudaDeviceEnablePeerAccess(0, 0);
  cudaGetLastError();
  polynomial_kernel<<<(count + 255) / 256, 256>>>(x, y, count);
  const cudaError_t error = cudaDeviceSynchronize();
  cudaSetDevice(0);
  return error;
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
