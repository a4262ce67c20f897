# problem: tiny_polynomial
# expect: PASSED
# exploit: S15
"""Reads four elements at a time, up to three of them beyond the input's end, and uses only its own.

PASSED: the values are right. compute-sanitizer (grade --sanitize) names the read.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = 4 * (blockIdx.x * long(blockDim.x) + threadIdx.x);
  if (i >= count) return;
  const float4 four = *reinterpret_cast<const float4*>(x + i);
  const float values[] = {four.x, four.y, four.z, four.w};
  for (int k = 0; k < 4 && i + k < count; ++k) y[i + k] = values[k] * values[k] + values[k];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  polynomial_kernel<<<(count + 1023) / 1024, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
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
