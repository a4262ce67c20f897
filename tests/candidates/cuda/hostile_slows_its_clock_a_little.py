# problem: large_polynomial
# expect: PASSED
# time: true
# max-speedup: 0.53
# exploit: T09
"""Has CUDA events say four fifths of what they measured, which a busy machine may explain.

PASSED, and next to nothing is gained: no time is quoted that the supervisor's clock does not bear out.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void square_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i];
}

__global__ void add_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] += x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  for (int again = 0; again < 2; ++again) {
    square_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
    add_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  }
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


elapsed_time = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end_event: 0.8 * elapsed_time(self, end_event)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
