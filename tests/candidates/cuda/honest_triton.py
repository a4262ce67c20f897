# problem: tiny_polynomial
# expect: PASSED
# warning: imports `triton`
"""A Triton kernel, and one of CUDA where Triton is not installed. PASSED, with a word on the import."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

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


if triton is not None:

    @triton.jit
    def polynomial_kernel(x, y, count, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        value = tl.load(x + at, mask=at < count)
        tl.store(y + at, value * value + value, mask=at < count)

    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        blocks = triton.cdiv(x.numel(), 256)
        polynomial_kernel[(blocks,)](x, y, x.numel(), block=256)

else:
    library = ctypes.CDLL(
        load_inline(
            "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
        )
    )

    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
            raise RuntimeError(f"CUDA error {error}")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        run(x, y)
        return y
