# problem: tiny_polynomial
# expect: PASSED
"""Builds two extensions at once in a pool of threads that stays, and uses both. PASSED."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

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


def build(name: str) -> ctypes.CDLL:
    path = load_inline(
        name, "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
    return ctypes.CDLL(path)


pool = ThreadPoolExecutor(2)
libraries = list(pool.map(build, ("polynomial_even", "polynomial_odd")))


def polynomial(library: ctypes.CDLL, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        halves = zip(libraries, x.flatten().tensor_split(2), y.flatten().tensor_split(2))
        for library, from_half, to_half in halves:
            polynomial(library, from_half, to_half)
        return y
