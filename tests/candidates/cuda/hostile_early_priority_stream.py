# problem: tiny_polynomial
# expect: NON_FINITE
# exploit: T02
"""Works on a non-blocking stream of the highest priority, at once: before the clock has begun to run.

NON_FINITE: inputs get their values on the current stream, and hold NaN until then.
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
  static cudaStream_t side = nullptr;
  int lowest, highest;
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  if (!side) cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, highest);
  polynomial_kernel<<<(count + 255) / 256, 256, 0, side>>>(x, y, count);
  return cudaStreamSynchronize(side);
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
