# problem: tiny_two_outputs
# expect: PASSED
"""torch's sum runs on a stream of its own, and joins after the kernel that squares. PASSED."""

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

extern "C" int square(const float* x, float* y, long count, cudaStream_t stream) {
  square_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "square", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def square(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.square(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.contiguous()
        current = torch.cuda.current_stream()
        squares = square(x)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            sums = x.sum(dim=1)
        sums.record_stream(current)
        current.wait_stream(side)
        return sums, squares
