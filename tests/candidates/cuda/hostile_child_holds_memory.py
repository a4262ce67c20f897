# problem: tiny_polynomial
# expect: PASSED
# exploit: H32
# alone: it takes the GPU's memory from whoever else is graded
"""Right, and a process forked at import, in a session of its own, holds 1 GB of the GPU for ever.

PASSED; that process and its memory are gone when the verdict is there.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
#include <unistd.h>

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

extern "C" int start() {
  if (fork()) return 0;
  setsid();
  void* held;
  cudaMalloc(&held, 1 << 30);
  for (;;) pause();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

library.start()


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
