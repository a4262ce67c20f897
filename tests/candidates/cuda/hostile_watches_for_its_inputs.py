# problem: tiny_polynomial
# expect: WRONG_VALUES
# time: true
# exploit: T02 H35
# alone: its trick needs a GPU that has nothing else to do
"""Starts early on a stream of its own, waits there until its inputs are no longer NaN, and works behind the long write.

It is done before the timing begins, and joined. WRONG_VALUES: where new inputs are written over the last ones, nothing is NaN.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void polynomial_kernel(const volatile float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  float value = x[i];
  for (const long long start = clock64(); isnan(value) && clock64() - start < 100'000'000;) value = x[i];
  for (const long long start = clock64(); clock64() - start < 300'000;) {}  // 0.15 ms
  y[i] = value * value + value;
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  static cudaStream_t side = nullptr;
  static cudaEvent_t done;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }
  polynomial_kernel<<<(count + 255) / 256, 256, 0, side>>>(x, y, count);
  cudaEventRecord(done, side);
  cudaStreamWaitEvent(stream, done);
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
