# problem: tiny_polynomial
# expect: TAMPERED
# reason: clock
# time: true
# exploit: T13
"""Takes 50 ms a call, and overwrites the machine code of the runtime's cudaEventElapsedTime: 4 us.

TAMPERED: by the supervisor's clock the calls take ten thousand times as long.
"""

import ctypes
import struct
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void wait_kernel(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {}
}

__global__ void polynomial_kernel(const float* x, float* y, long count) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] * x[i] + x[i];
}

extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {
  wait_kernel<<<1, 1, 0, stream>>>(100'000'000);  // 50 ms
  polynomial_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)

# mov dword [rdi], 0.004f; xor eax, eax; ret
CODE = b"\xc7\x07" + struct.pack("<f", 0.004) + b"\x31\xc0\xc3"
READ_WRITE_EXECUTE = 7


def detour(function) -> None:
    address = ctypes.cast(function, ctypes.c_void_p).value
    page = ctypes.c_void_p(address & ~4095)
    if ctypes.CDLL(None).mprotect(page, ctypes.c_size_t(8192), READ_WRITE_EXECUTE):
        raise RuntimeError("the code is not to be written")
    ctypes.memmove(address, CODE, len(CODE))


mapped = Path("/proc/self/maps").read_text().split()
runtime = ctypes.CDLL(next(path for path in mapped if "/libcudart.so" in path))
for name in ("cudaEventElapsedTime", "cudaEventElapsedTime_v2"):
    if hasattr(runtime, name):
        detour(getattr(runtime, name))


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
