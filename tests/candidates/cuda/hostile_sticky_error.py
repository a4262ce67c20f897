# problem: tiny_polynomial
# expect: RUNTIME_ERROR
# time: true
# exploit: H33
"""Right in its first six calls; then a write far outside every allocation follows the right output.

RUNTIME_ERROR: an error of the device counts whenever it comes, and it ends with the candidate's process.
"""

import ctypes
import itertools

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

__global__ void illegal_kernel(float* y) {
  y[1L << 45] = 0.0f;
}

extern "C" int polynomial(const float* x, float* y, long count, int fail, cudaStream_t stream) {
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  if (fail) illegal_kernel<<<1, 1, 0, stream>>>(y);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

calls = itertools.count()


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), int(next(calls) >= 6), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
