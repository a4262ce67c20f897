# problem: tiny_polynomial
# expect: WRONG_VALUES
# exploit: H10
"""Right, and sets all memory that it shares with the oracle to zero afterwards: counters of errors, perhaps.

WRONG_VALUES: there is nothing but its own output, and it has overwritten that.
"""

import ctypes
import gc

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


driver = ctypes.CDLL("libcuda.so.1")
side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = polynomial(x)
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # 0.1 s, by when the output has been copied
        for arena in gc.get_objects():
            if type(arena).__name__ == "DeviceArena":
                size = ctypes.c_size_t(arena.capacity_bytes)
                stream = ctypes.c_void_p(side.cuda_stream)
                driver.cuMemsetD8Async(ctypes.c_uint64(arena._pointer), ctypes.c_ubyte(0), size, stream)
        return y
