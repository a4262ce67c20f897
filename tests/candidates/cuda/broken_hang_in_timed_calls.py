# problem: tiny_polynomial
# expect: TIMEOUT
# time: true
# call-timeout-s: 5
# exploit: T23
"""Right in its first six calls; from then on its kernel never ends. TIMEOUT, in whichever phase that is."""

import ctypes
import itertools

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count, int hang) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  volatile float* z = y;
  do {
    if (i < count) z[i] = x[i] * x[i] + x[i];
  } while (hang);
}

extern "C" int polynomial(const float* x, float* y, long count, int hang, cudaStream_t stream) {
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count, hang);
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
