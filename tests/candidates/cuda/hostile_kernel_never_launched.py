# problem: tiny_polynomial
# expect: NO_CUSTOM_KERNEL
# exploit: S19 S17 S20
"""The reference under another name; the kernel beside it is compiled, loaded and never launched.

NO_CUSTOM_KERNEL: none of the kernels that ran is the candidate's.
"""

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


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x + x


class ModelNew(Model):
    launcher = library.polynomial
